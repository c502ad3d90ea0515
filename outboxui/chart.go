package outboxui

import (
	"math"
	"strconv"
	"strings"
)

// The size of a chart in its own units. The stylesheet stretches it.
const (
	chartWidth  = 288
	chartHeight = 88
)

// chart is a drawing: shapes for SVG, and words for HTML.
type chart struct {
	Name, Now string
	Top       string // what the upper edge stands for
	Label     string // for people who do not see it
	Line      string // paths of SVG; empty: bars
	Area      string
	Bars      []bar
	Shade     []box2
	Axis      []string
}

// bar is a rectangle of a chart.
type bar struct {
	Kind string // dead or refused
	box2
}

type box2 struct{ X, Y, W, H float64 }

// Attr writes a length.
func (b box2) Attr(f float64) string { return short(f) }

func short(f float64) string { return strconv.FormatFloat(math.Round(f*10)/10, 'f', -1, 64) }

// top is the next round number above a value: 1, 2, 5, 10 and so on.
func top(most float64) float64 {
	if most <= 1 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(most)))
	for _, n := range []float64{1, 2, 5, 10} {
		if most <= n*unit {
			return n * unit
		}
	}
	return 10 * unit
}

// lineChart draws values from left to right.
func lineChart(name, now string, values []float64, axis []string, shade []box2, label string) chart {
	most := 0.0
	for _, v := range values {
		most = max(most, v)
	}
	edge := top(most)
	c := chart{Name: name, Now: now, Top: number(edge), Label: label, Axis: axis, Shade: shade}
	var line strings.Builder
	step := chartWidth / max(1, float64(len(values)-1))
	for i, v := range values {
		line.WriteString(map[bool]string{true: "M", false: "L"}[i == 0])
		line.WriteString(short(float64(i)*step) + " " + short(chartHeight-v/edge*chartHeight))
	}
	c.Line = line.String()
	c.Area = c.Line + "V" + short(chartHeight) + "H0Z"
	return c
}

// barChart draws two kinds of values upon each other.
func barChart(name string, dead, refused []float64, axis []string, shade []box2, label string) chart {
	most := 0.0
	for i := range dead {
		most = max(most, dead[i]+refused[i])
	}
	edge := top(most)
	c := chart{Name: name, Top: number(edge), Label: label, Axis: axis, Shade: shade}
	step := chartWidth / max(1, float64(len(dead)))
	for i := range dead {
		y := float64(chartHeight)
		for _, part := range []struct {
			kind  string
			value float64
		}{{"dead", dead[i]}, {"refused", refused[i]}} {
			if part.value == 0 {
				continue
			}
			h := max(1.5, part.value/edge*chartHeight)
			y -= h
			c.Bars = append(c.Bars, bar{part.kind, box2{X: float64(i)*step + step*0.18, Y: y, W: step * 0.64, H: h}})
		}
	}
	return c
}
