package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// progress shows on a terminal which competitor is being measured. Elsewhere it prints nothing.
type progress struct {
	out   io.Writer
	begun time.Time
}

func newProgress(w io.Writer) *progress {
	p := &progress{begun: time.Now()}
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			p.out = w
		}
	}
	return p
}

func (p *progress) show(format string, args ...any) {
	if p.out != nil {
		fmt.Fprintf(p.out, "\r\x1b[K%4.0f s  %s", time.Since(p.begun).Seconds(), fmt.Sprintf(format, args...))
	}
}

func (p *progress) clear() {
	if p.out != nil {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
