package suite

import (
	"cmp"
	"math/rand/v2"
	"testing"
)

// captureRandom runs random statements. Each statement must either cause its events or be refused.
func captureRandom(t *testing.T, h CaptureHarness) {
	seed := cmp.Or(h.Seed, rand.Uint64())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	f := &captureFixture{T: t, CaptureORM: h.Open(t)}
	told, refused, lacks := 0, 0, 0
	for n := range cmp.Or(h.Statements, 200) {
		own := r.IntN(2) == 0
		rows := f.reset(own, captureStock(own)...)
		s := randomStatement(r, captureModels{rows: rows, own: own})
		ignore := r.IntN(3) == 0
		c := f.run(s, ignore)
		switch {
		case c.lacks():
			lacks++
			continue
		case c.err != nil, c.execErr != nil:
			refused++
		default:
			told++
		}
		f.check(s, c)
		if t.Failed() {
			t.Fatalf("statement %d of seed %d; the program ignores errors: %v", n, seed, ignore)
		}
	}
	t.Logf("count: %d random statements", told+refused)
	t.Logf("%d statements caused events, %d were refused, %d the ORM does not have", told, refused, lacks)
	if told == 0 {
		t.Error("none of the statements caused events")
	}
}

// randomStatement makes a statement on rows a, b and c.
func randomStatement(r *rand.Rand, m captureModels) CaptureStatement {
	s := CaptureStatement{
		Do: CaptureDo(r.IntN(int(CaptureDelete) + 1)), Own: m.own, Set: CaptureSet(r.IntN(3)), Note: freshNote(),
		Returning: []CaptureReturning{0, 0, CaptureReturnsAll, CaptureReturnsKey, CaptureReturnsNote}[r.IntN(5)],
	}
	switch r.IntN(5) {
	case 0, 1:
		s.Mapped = true
	case 2, 3:
		s.Recorder = true
	default:
		s.Mapped, s.Recorder = true, true
	}
	n := 1
	if s.Slice = r.IntN(2) == 0; s.Slice {
		n = 1 + r.IntN(3)
		s.Values = r.IntN(2) == 0
	}
	names := []string{"a", "b", "c", "d", "e", "f"}
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	switch s.Do {
	case CaptureCreate:
		s.Models = m.fresh([]string{"d", "e", "f"}[:n]...)
	case CaptureSkip, CaptureUpsert:
		s.OnName = r.IntN(2) == 0
		if s.Models = m.fresh(names[:n]...); !m.own && !s.OnName {
			s.OnName = true // no row can have an unknown key
		}
	default:
		s.change(r, m, names, n)
	}
	if s.Recorder {
		s.record(func() bool { return r.IntN(3) > 0 })
	}
	return s
}

// change makes an update or a delete of s.
func (s *CaptureStatement) change(r *rand.Rand, m captureModels, names []string, n int) {
	if s.ByKey = r.IntN(4) > 0; !s.ByKey {
		if s.Models = m.unkeyed(); s.Slice || r.IntN(2) == 0 {
			s.Models = nil
		}
		s.Set = max(s.Set, CaptureSetNote)
	} else {
		for _, name := range names[:n] {
			switch _, there := m.rows[name]; {
			case there && s.Set == CaptureSetModel:
				s.Models = append(s.Models, m.changed(name)...)
			case there:
				s.Models = append(s.Models, m.loaded(name)...)
			case m.own:
				s.Models = append(s.Models, m.gone(name)...)
			case s.Set == CaptureSetModel:
				s.Models = append(s.Models, m.changed("a")...) // sometimes twice
			default:
				s.Models = append(s.Models, m.loaded("a")...)
			}
		}
	}
	if conditions := []*CaptureWhere{nameIsNotB, nameIsB, nobody, aOrC, onTwoLines, quotedWords}; !s.ByKey ||
		r.IntN(2) == 0 {
		s.Where = conditions[r.IntN(len(conditions))]
	}
}
