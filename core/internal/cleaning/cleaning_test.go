package cleaning_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ormoutbox/ormoutbox/core/internal/cleaning"
)

// A database deletes 130 rows within its time limit.
func TestBatchFindsWhatFits(t *testing.T) {
	t.Parallel()
	b := cleaning.Batch{TimeLimit: func(error) bool { return false }}
	deleted, statements, failed := 0, 0, 0
	for range 200 {
		rows := b.Rows(1000)
		var err error
		if rows > 130 {
			err = fmt.Errorf("delete: %w", context.DeadlineExceeded)
		}
		statements++
		if b.Ended(t.Context(), rows, err) {
			failed++
			continue
		}
		if err != nil {
			t.Fatalf("given up at %d rows", rows)
		}
		deleted += rows
	}
	if deleted < 200*60 || failed > 200/4 {
		t.Errorf("%d rows deleted by %d statements, of which %d failed", deleted, statements, failed)
	}
}

func TestBatchGivesUp(t *testing.T) {
	t.Parallel()
	b := cleaning.Batch{TimeLimit: func(error) bool { return false }}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, again := range map[string]bool{
		"another error": b.Ended(t.Context(), 1000, errors.New("no such table")),
		"the caller":    b.Ended(ended, 1000, context.DeadlineExceeded),
		"few rows":      b.Ended(t.Context(), 10, context.DeadlineExceeded),
	} {
		if again || b.Rows(1000) != 1000 {
			t.Errorf("%s: goes on: %v, next batch %d rows", name, again, b.Rows(1000))
		}
	}
	if !b.Ended(t.Context(), 1000, context.DeadlineExceeded) || b.Rows(1000) != 500 || b.Rows(100) != 100 {
		t.Errorf("after a batch of 1000 ran out of time: %d", b.Rows(1000))
	}
}
