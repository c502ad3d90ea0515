package crash_test

import (
	"context"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/integration/internal/crash"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The proof notices processes that work in the wrong order.
func TestCrashProofNoticesMutants(t *testing.T) { // not parallel: its processes need the whole machine
	for _, mutant := range []struct {
		crash.Mutant
		point   crash.Point
		noticed func(crash.Verdict) int
	}{
		{crash.MarkFirst, crash.AfterMark, func(v crash.Verdict) int { return v.Lost }},
		{crash.PublishEarly, crash.BeforeCommit, func(v crash.Verdict) int { return v.Ghosts }},
	} {
		t.Run(string(mutant.Mutant), func(t *testing.T) {
			t.Parallel()
			c := newCell(t, testdb.DB{Name: "postgres"}, mutant.point, 5)
			c.name, c.spec.Mutant = "mutant: "+string(mutant.Mutant), mutant.Mutant
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			v, err := c.run(ctx)
			t.Log(crash.Table([]crash.Verdict{v}))
			fixture.Check(t, err != nil && mutant.noticed(v) != 0, "nobody noticed: %v", err)
		})
	}
}
