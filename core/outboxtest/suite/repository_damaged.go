package suite

import (
	"maps"
	"strings"
)

func damagedCases() []repositoryCase {
	return []repositoryCase{
		{"headers with numbers are read as text", damagedScalars},
		{"a row that cannot be read does not stop the others", damagedRow},
	}
}

func damagedScalars(f *fixture) {
	if f.SetHeaders == nil {
		return
	}
	for _, key := range []string{"", "k"} {
		row := newRow("topic", key)
		f.commit(row)
		f.SetHeaders(f, row.ID, `{"a":1, "b":"two", "c":true, "d":1.50, "e":null}`)
		c := f.one(nodeA)
		want := map[string]string{"a": "1", "b": "two", "c": "true", "d": c.Event.Headers["d"], "e": ""}
		f.must(c.Err == nil && maps.Equal(c.Event.Headers, want) && strings.HasPrefix(want["d"], "1.5"),
			"headers %q, error %v", c.Event.Headers, c.Err)
		f.done(true, row.ID)
	}
}

func damagedRow(f *fixture) {
	if f.SetHeaders == nil {
		return
	}
	for _, text := range []string{`[1]`, `"x"`, `{"a":{"b":1}}`, `{"a":[1]}`} {
		bad, good := newRow("topic", ""), newRow("topic", "")
		run := newRows(3, "topic", "k")
		f.commit(append(run, bad, good)...)
		f.SetHeaders(f, bad.ID, text)
		f.SetHeaders(f, run[1].ID, text)
		rows := f.claim(request(nodeA))
		f.wantSet(rows, bad, good)
		heads := f.heads(request(nodeA))
		f.wantIDs(heads, run...)
		for _, c := range append(rows, heads...) {
			damaged := c.ID == bad.ID || c.ID == run[1].ID
			f.must((c.Err != nil) == damaged, "row %s with headers %s: error %v", c.ID, text, c.Err)
			if damaged { // the readable fields are returned
				f.must(c.Event.Topic == "topic" && string(c.Event.Payload) == `{"n":1}`,
					"claimed %+v", c)
				f.kill(nodeA, c)
			}
		}
		dead := f.dead()
		f.must(len(dead) == 2, "%d dead rows are listed, want 2", len(dead))
		for _, d := range dead {
			f.must(d.Event.Topic == "topic" && len(d.Event.Headers) == 0 && d.ErrorCode == "boom", "listed as %+v", d)
		}

		// The row blocks its key until it is repaired and redriven.
		f.must(f.done(true, run[0].ID, good.ID) == 2, "not done")
		f.must(f.release(nodeA, ref(heads[2])) == 1, "not released")
		f.none("behind a dead row")
		f.SetHeaders(f, run[1].ID, `{"a":"b"}`)
		f.must(f.redrive(adminOf(run[1].ID)) == 1, "not redriven")
		again := f.heads(request(nodeB))
		f.wantIDs(again, run[1], run[2])
		f.must(again[0].Err == nil && again[0].Event.Headers["a"] == "b", "claimed %+v", again[0])
		f.done(true, bad.ID, run[1].ID, run[2].ID)
	}
}
