package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
		old, err := figures(before)
		if err != nil {
			return err
		}
		present, err := figures(filepath.Join(dir, "present"+name[len("before"):]))
		if err != nil {
			return err
		}
		for _, f := range present {
			for _, o := range old {
				if o.name != f.name || o.value.isNone() || f.value.isNone() || o.value == 0 {
					continue
				}
				if ratios[f.name] == nil {
					lines = append(lines, f.name)
				}
				ratios[f.name] = append(ratios[f.name], float64(f.value/o.value))
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
	value Value
}

// figures reads the figures of a report, without shares and ratios.
func figures(path string) (all []figure, err error) {
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
				for i, c := range t.Columns {
					if i < len(row.Values) && (c.Kind == Count || c.Kind == Micros) {
						name := s.Name + ": " + t.Title + ": " + row.Name + ": " + c.Name
						all = append(all, figure{name, row.Values[i]})
					}
				}
			}
		}
	}
	return all, nil
}
