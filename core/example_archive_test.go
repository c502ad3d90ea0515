package core_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// Rows are written to files, one for each row, before the janitor deletes them. A row that comes
// again after a crash replaces its file.
func ExampleRetention() {
	dir, err := os.MkdirTemp("", "archive")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	archive := func(_ context.Context, rows []core.ArchivedEvent) error {
		for _, row := range rows {
			text, err := json.Marshal(row)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, row.ID.String()+".json"), text, 0o600); err != nil {
				return err
			}
		}
		return nil
	}
	ob, err := core.New(core.Config{
		Repository: outboxtest.NewRepository(), // sqloutbox.New in a service
		Relay: relay.Config{
			Retention: relay.Retention{
				Keep:          30 * 24 * time.Hour,
				KeepDiscarded: 90 * 24 * time.Hour,
				Archive:       archive,
			},
		},
	})
	fmt.Println(ob != nil, err)
	// Output: true <nil>
}
