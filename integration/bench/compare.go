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
	ratios := map[string][]float64{}
	for _, file := range files {
		before, err := read(file)
		if err != nil {
			return err
		}
		present, err := read(filepath.Join(dir, "present"+filepath.Base(file)[len("before"):]))
		if err != nil {
			return err
		}
		for name, v := range present {
			if before[name] > 0 {
				ratios[name] = append(ratios[name], v/before[name])
			}
		}
	}
	fmt.Fprintf(out, "present / before, median of %d rounds:\n", len(files))
	for _, name := range slices.Sorted(maps.Keys(ratios)) {
		fmt.Fprintf(out, "  %6.3f  %s\n", median(ratios[name]), name)
	}
	return nil
}

// read returns the figures of a report by their names, without ratios and shares.
func read(path string) (figures, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Report
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	all := figures{}
	for _, s := range r.Sections {
		for _, t := range s.Tables {
			for _, row := range t.Rows {
				for c, v := range row.Medians {
					if !strings.HasPrefix(c, "÷") && c != "aim" && c != "finished" && c != "fast path" {
						all[s.Name+": "+t.Title+": "+row.Name+": "+c] = v
					}
				}
			}
		}
	}
	return all, nil
}
