package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"
)

// writeSamples writes the samples as CSV, unless file is empty.
func writeSamples(file string, all []tortureSample) error {
	if file == "" {
		return nil
	}
	var b bytes.Buffer
	b.WriteString("competitor,second,reports,written,published,claims,claim_p99_ms,dead_rows,updates,hot_updates\n")
	for _, s := range all {
		fmt.Fprintf(&b, "%s,%.1f,%t,%d,%d,%d,%.3f,%d,%d,%d\n", s.competitor, s.at.Seconds(), s.reports, s.written,
			s.published, s.claims, s.claimP99, s.dead, s.updates, s.hot)
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

// drawTorture writes the picture, unless file is empty.
func drawTorture(file string, all []tortureSample) error {
	if file == "" || len(all) == 0 {
		return nil
	}
	return os.WriteFile(file, torturePicture(all), 0o644)
}

// The picture has three panels, one below the other, in pixels.
const (
	pictureWidth = 820
	panelLeft    = 60
	panelRight   = 800
	panelTop     = 76 // of the first one
	panelHeight  = 130
	panelStep    = 176
	plotPoints   = 180 // of each line
)

// torturePanels are the panels, on logarithmic scales from floor on.
var torturePanels = []struct {
	title string
	floor float64
	of    func(tortureSample) float64
}{
	{"events that wait to be published", 1, func(s tortureSample) float64 { return float64(s.backlog()) }},
	{"p99 of the claims of ten seconds, ms", 1, func(s tortureSample) float64 { return s.claimP99 }},
	{"dead rows that VACUUM must keep", 100, func(s tortureSample) float64 { return float64(s.dead) }},
}

// tortureStyle has the colours for light and dark pages.
const tortureStyle = `
  .back { fill: #fbfcfd; } .area { fill: #1f6fb2; opacity: .07; } .grid { stroke: #d5dce3; } .axis { fill: #5a6875; }
  .title { fill: #1d2935; font-weight: bold; } .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
  .s0 { stroke: #1f6fb2; } .s1 { stroke: #2a8f5b; } .s2 { stroke: #c2571a; } .s3 { stroke: #8a5fc0; }
  @media (prefers-color-scheme: dark) {
    .back { fill: #14191f; } .area { opacity: .2; } .grid { stroke: #303a44; } .axis { fill: #9aa7b3; }
    .title { fill: #e6ebf0; }
    .s0 { stroke: #6cb2f0; } .s1 { stroke: #62c794; } .s2 { stroke: #f09a5c; } .s3 { stroke: #bd9bef; }
  }
`

// torturePicture draws the samples as SVG, a line for each competitor.
func torturePicture(all []tortureSample) []byte {
	var names []string
	var end time.Duration
	for _, s := range all {
		if !slices.Contains(names, s.competitor) {
			names = append(names, s.competitor)
		}
		end = max(end, s.at)
	}
	height := panelTop + len(torturePanels)*panelStep
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="Helvetica, Arial, `+
		`sans-serif" font-size="13" role="img" aria-labelledby="title">
  <title id="title">Backlog, p99 of a claim, and dead rows of %s over %.0f minutes, beside long reports.</title>
  <style>%s</style>
  <rect class="back" width="%d" height="%d" rx="10"/>
`, pictureWidth, height, strings.Join(names, ", "), end.Minutes(), tortureStyle, pictureWidth, height)
	x := panelLeft
	for i, name := range names {
		fmt.Fprintf(&b, `  <path class="line s%d" d="M%d 24h24"/><text class="title" x="%d" y="29">%s</text>
`, i, x, x+30, name)
		x += 56 + 8*len(name)
	}
	scaleX := func(at time.Duration) float64 { return panelLeft + (panelRight-panelLeft)*at.Seconds()/end.Seconds() }
	for i, panel := range torturePanels {
		top := panelTop + i*panelStep
		most := panel.floor * 10
		for _, s := range all {
			most = max(most, panel.of(s))
		}
		decades := math.Ceil(math.Log10(most / panel.floor))
		scaleY := func(v float64) float64 {
			return float64(top+panelHeight) - panelHeight*math.Log10(max(v, panel.floor)/panel.floor)/decades
		}
		drawAxes(&b, panel.title, top, end, panel.floor, decades, scaleX, scaleY)
		drawReports(&b, all, top, scaleX)
		for n, name := range names {
			fmt.Fprintf(&b, `  <path class="line s%d" d="%s"/>
`, n, linePath(all, name, panel.of, scaleX, scaleY))
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// drawAxes draws the title of a panel, a line for each power of ten, and the minutes.
func drawAxes(b *bytes.Buffer, title string, top int, end time.Duration, floor, decades float64,
	scaleX func(time.Duration) float64, scaleY func(float64) float64,
) {
	fmt.Fprintf(b, `  <text class="title" x="%d" y="%d">%s</text>
`, panelLeft, top-10, title)
	for d := range int(decades) + 1 {
		v := floor * math.Pow(10, float64(d))
		fmt.Fprintf(b, `  <path class="grid" d="M%d %.1fH%d"/>
  <text class="axis" x="%d" y="%.1f" text-anchor="end">%s</text>
`, panelLeft, scaleY(v), panelRight, panelLeft-8, scaleY(v)+4, shortNumber(v))
	}
	step := max(time.Minute, (end / 8).Round(time.Minute))
	for at := time.Duration(0); at <= end; at += step {
		fmt.Fprintf(b, `  <text class="axis" x="%.1f" y="%d" text-anchor="middle">%.0f min</text>
`, scaleX(at), top+panelHeight+18, at.Minutes())
	}
}

// shortNumber writes a power of ten.
func shortNumber(v float64) string {
	switch {
	case v >= 1e6:
		return show("", v/1e6) + " M"
	case v >= 1e3:
		return show("", v/1e3) + " k"
	}
	return show("", v)
}

// drawReports shades the time of the reports.
func drawReports(b *bytes.Buffer, all []tortureSample, top int, scaleX func(time.Duration) float64) {
	var from, to time.Duration
	for _, s := range all {
		if s.reports && (from == 0 || s.at < from) {
			from = s.at
		}
		if s.reports {
			to = max(to, s.at)
		}
	}
	fmt.Fprintf(b, `  <rect class="area" x="%.1f" y="%d" width="%.1f" height="%d"/>
`, scaleX(from), top, scaleX(to)-scaleX(from), panelHeight)
}

// linePath is the line of one competitor. A point is the most of its part of the time.
func linePath(all []tortureSample, name string, of func(tortureSample) float64, scaleX func(time.Duration) float64,
	scaleY func(float64) float64,
) string {
	var mine []tortureSample
	for _, s := range all {
		if s.competitor == name {
			mine = append(mine, s)
		}
	}
	size := max(1, (len(mine)+plotPoints-1)/plotPoints)
	var path strings.Builder
	for part := range slices.Chunk(mine, size) {
		most := 0.0
		for _, s := range part {
			most = max(most, of(s))
		}
		command := "L"
		if path.Len() == 0 {
			command = "M"
		}
		fmt.Fprintf(&path, "%s%.1f %.1f", command, scaleX(part[0].at), scaleY(most))
	}
	return path.String()
}
