package main

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"
)

// Sizes in a plot, in pixels.
const (
	plotWidth  = 900
	plotNames  = 420 // width of the names of rows
	plotFigure = 80  // width of the figures behind the bars
	plotRow    = 20
	plotHead   = 34
)

// plotStyle is readable in light and in dark, on the background of the page.
const plotStyle = `<style>
text { fill: #1d2935; font: 13px Helvetica, Arial, sans-serif; }
.head { font-weight: bold; }
.figure { fill: #5a6875; }
.bar { fill: #6fa8d6; }
.ours { fill: #1f6fb2; }
.range { stroke: #1d2935; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) {
  text { fill: #e3e9ef; }
  .figure { fill: #a7b3bf; }
  .bar { fill: #41617d; }
  .ours { fill: #4a9be0; }
  .range { stroke: #e3e9ef; }
}
</style>
`

// plotFile returns the name of a section's plot, relative to the page.
func (s *Section) plotFile() string { return "assets/bench-" + s.Name + ".svg" }

// plot draws the first column of every table. Each row has a bar that ends at its median, and a
// line from the least to the most of its rounds. Rows of the outbox are darker.
func (s *Section) plot() string {
	height := 0
	for _, t := range s.Tables {
		height += plotHead + plotRow*len(t.Rows)
	}
	height += plotRow / 2
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title">
<title id="title">%s</title>
`, plotWidth, height, html.EscapeString(s.Title))
	b.WriteString(plotStyle)
	y := 0
	for _, t := range s.Tables {
		t.plot(&b, y)
		y += plotHead + plotRow*len(t.Rows)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (t *Table) plot(b *strings.Builder, y int) {
	fmt.Fprintf(b, `<text class="head" x="4" y="%d">%s: %s</text>`+"\n", y+plotHead-12, html.EscapeString(t.Title),
		html.EscapeString(t.Columns[0].Name))
	y += plotHead
	most := 0.0
	for _, r := range t.Rows {
		_, high := r.extent(0)
		most = max(most, high)
	}
	at := func(v float64) float64 { return plotNames + v/most*(plotWidth-plotNames-plotFigure) }
	for i, r := range t.Rows {
		top := y + i*plotRow
		fmt.Fprintf(b, `<text x="16" y="%d">%s</text>`+"\n", top+14, html.EscapeString(r.Name))
		v := r.Values[0]
		if v.isNone() || most <= 0 {
			continue
		}
		class := "bar"
		if r.ours() {
			class = "ours"
		}
		low, high := r.extent(0)
		fmt.Fprintf(b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d"/>`+"\n", class, plotNames, top+3,
			at(float64(v))-plotNames, plotRow-6)
		fmt.Fprintf(b, `<line class="range" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`+"\n", at(low),
			top+plotRow/2, at(high), top+plotRow/2)
		fmt.Fprintf(b, `<text class="figure" x="%.1f" y="%d">%s</text>`+"\n", at(high)+6, top+14,
			html.EscapeString(t.Columns[0].Kind.text(v)))
	}
}

// ours reports whether a row is one of this project.
func (r *Row) ours() bool {
	return strings.Contains(r.Name, "ormoutbox,") || strings.Contains(r.Name, "ormoutbox:") ||
		strings.Contains(r.Name, "+ outbox") || strings.HasPrefix(r.Name, "outbox") ||
		strings.Contains(r.Name, ", outbox and relay") || strings.Contains(r.Name, "inbox") && r.Name != handInboxName
}

// extent returns the least and the most of a column over the rounds.
func (r *Row) extent(column int) (low, high float64) {
	first := true
	for _, round := range r.Rounds {
		v := round[column]
		if v.isNone() {
			continue
		}
		if first {
			low, high, first = float64(v), float64(v), false
		}
		low, high = min(low, float64(v)), max(high, float64(v))
	}
	return low, high
}

// savePlots writes the plots of a page.
func (r *Report) savePlots(page string) error {
	dir := filepath.Dir(page)
	if err := os.MkdirAll(filepath.Join(dir, "assets"), 0o755); err != nil {
		return err
	}
	for _, s := range r.Sections {
		if len(s.Tables) == 0 {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, s.plotFile()), []byte(s.plot()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
