package suite

import "testing"

// captureKeys runs statements on models whose key is a pointer.
func captureKeys(t *testing.T, h CaptureHarness) {
	f := &captureFixture{T: t, CaptureORM: h.Open(t)}
	for _, of := range []func(m captureModels) CaptureStatement{
		func(m captureModels) CaptureStatement {
			return CaptureStatement{Do: CaptureCreate, Models: m.fresh("d")}
		},
		func(m captureModels) CaptureStatement {
			return CaptureStatement{Do: CaptureCreate, Models: m.fresh("d", "e", "f"), Slice: true}
		},
		func(m captureModels) CaptureStatement {
			return CaptureStatement{Do: CaptureUpdate, ByKey: true, Models: m.changed("b")}
		},
		func(m captureModels) CaptureStatement {
			return CaptureStatement{Do: CaptureDelete, ByKey: true, Models: m.loaded("b")}
		},
		func(m captureModels) CaptureStatement {
			return CaptureStatement{Do: CaptureDelete, ByKey: true, Models: m.loaded("a", "b"), Slice: true}
		},
	} {
		f.is(f.withPointer(of))
	}
	for _, do := range []CaptureDo{CaptureUpdate, CaptureDelete} {
		s := f.withPointer(func(captureModels) CaptureStatement {
			return CaptureStatement{Do: do, Set: CaptureSetNote, Note: freshNote(), Where: &CaptureWhere{
				Text: "note = 'old'", Holds: func(r CaptureRow) bool { return r.Note == oldNote },
			}}
		})
		c := f.run(s, false)
		if c.lacks() {
			f.Logf("the ORM has no such statement: %v", c.execErr)
			continue
		}
		if f.check(s, c); c.err != nil {
			f.Errorf("%v: %s", c.err, s)
		}
	}
}

func (f *captureFixture) withPointer(of func(m captureModels) CaptureStatement) CaptureStatement {
	f.Helper()
	s := of(captureModels{rows: f.reset(false, captureStock(false)...)})
	s.Mapped, s.Recorder, s.Pointer = true, true, true
	s.record(func() bool { return true })
	return s
}
