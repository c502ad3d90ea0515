package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// screen shows the progress: on a terminal one line that changes, otherwise one line for each life.
type screen struct {
	out   io.Writer
	live  bool
	drawn time.Time
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

func (s *screen) printf(format string, args ...any) { fmt.Fprintf(s.out, format, args...) }

// life shows the state of a life of the shop. end says how the life ended, and is empty while it
// goes on.
func (s *screen) life(number int, c counts, orders int, end string) {
	if end == "" && (!s.live || time.Since(s.drawn) < 40*time.Millisecond) {
		return
	}
	s.drawn = time.Now()
	width := len(fmt.Sprint(orders))
	line := fmt.Sprintf("  life %-3d committed %*d of %d   copies delivered %*d", number, width, c.committed, orders,
		width, c.delivered)
	if end != "" {
		line += "   " + end + "\n"
	}
	if s.live {
		line = "\r\x1b[K" + line
	}
	s.printf("%s", line)
}

// printLedger prints the result for people.
func printLedger(w io.Writer, r result) {
	var b strings.Builder
	if r.audited {
		printNumbers(&b, r)
	}
	if r.OK {
		fmt.Fprintf(&b, "\nThe ledger balances: every committed order was delivered, nothing else was. (%.1f s)\n",
			r.Seconds)
	} else {
		b.WriteString("\nFAILED\n")
		for _, p := range r.Problems {
			fmt.Fprintf(&b, "  %s\n", p)
		}
		if r.Files != "" {
			fmt.Fprintf(&b, "The files were kept: %s\n", r.Files)
		}
		fmt.Fprintf(&b, "To kill at the same points again: -seed %d\n", r.Seed)
	}
	io.WriteString(w, b.String())
}

func printNumbers(b *strings.Builder, r result) {
	line := func(name string, n int, meaning string) { fmt.Fprintf(b, "  %-13s %7d   %s\n", name, n, meaning) }
	b.WriteString("\nThe ledger\n\n")
	line("committed", r.Committed, "orders in the database")
	line("delivered", r.Delivered, "of them, seen by the consumer")
	line("lost", r.Lost, "committed, never delivered")
	line("ghosts", r.Ghosts, "delivered, never committed")
	line("out of order", r.OutOfOrder, "first copies that came after a later order of their customer")
	line("duplicates", r.Duplicates, "seen by the consumer: delivered, and killed before that was noted")
	b.WriteString("\n")
	kills := "SIGKILL in the middle of the work"
	if r.Kills < r.killsAsked {
		kills += fmt.Sprintf("; it had finished before the other %d", r.killsAsked-r.Kills)
	}
	line("kills", r.Kills, kills)
	line("rolled back", r.RolledBack, "orders given up after their event was written: none may be delivered")
	line("hot", r.Hot, "events published straight from their commit")
	line("cold", r.Cold, "events found in the table: after a kill, or waiting behind one of these")
}

// printJSON prints the result for machines.
func printJSON(w io.Writer, r result) {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.Encode(r)
}
