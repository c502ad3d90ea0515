package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// compare prints the ratios of the figures of the present code to those of another commit. dir has
// the files before-N.json and present-N.json of each round N. A ratio is the median of the ratios
// within the rounds.
func compare(dir string, out io.Writer) error {
	files, err := filepath.Glob(filepath.Join(dir, "before-*.json"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return errors.New("there is no round to compare in " + dir)
	}
	var lines []string // in the order of the reports
	ratios := map[string][]float64{}
	for _, before := range files {
		name := filepath.Base(before)
		old, err := read(before)
		if err != nil {
			return err
		}
		present, err := read(filepath.Join(dir, "present"+name[len("before"):]))
		if err != nil {
			return err
		}
		for _, f := range present {
			for _, o := range old {
				if o.name != f.name || o.value == 0 {
					continue
				}
				if ratios[f.name] == nil {
					lines = append(lines, f.name)
				}
				ratios[f.name] = append(ratios[f.name], f.value/o.value)
			}
		}
	}
	fmt.Fprintf(out, "present / before, median of %d rounds:\n", len(files))
	for _, name := range lines {
		fmt.Fprintf(out, "  %6.3f  %s\n", median(ratios[name]), name)
	}
	return nil
}

// figure is one figure of a report.
type figure struct {
	name  string
	value float64
}

// read returns the figures of a report in the order of its tables, without ratios and shares.
func read(path string) (all []figure, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Report
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, s := range r.Sections {
		for _, t := range s.Tables {
			for _, row := range t.Rows {
				for _, c := range slices.Sorted(maps.Keys(row.Medians)) {
					if !strings.HasPrefix(c, "÷") && c != "aim" && c != "finished" && c != "fast path" {
						name := s.Name + ": " + t.Title + ": " + row.Name + ": " + c
						all = append(all, figure{name, row.Medians[c]})
					}
				}
			}
		}
	}
	return all, nil
}
