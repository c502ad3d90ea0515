package franzbridge

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

// Offsets that are released in any order, by several groups, are those that are read again.
func TestReleased(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		r, want := released{floor: 5}, map[int64]bool{}
		for range rnd.IntN(60) {
			o := 5 + rnd.Int64N(40)
			want[o] = true
			other := released{floor: 5}
			other.add(span{o, o + 1})
			if r.merge(other); rnd.IntN(3) == 0 {
				r = readReleased(r.floor, r.text())
			}
		}
		for o := range int64(50) {
			if got := r.has(o); got != (o < 5 || want[o]) {
				t.Fatalf("seed %d: %d is released: %t; %+v", seed, o, got, r)
			}
		}
		if again := readReleased(r.floor, r.text()); !reflect.DeepEqual(again, r) {
			t.Fatalf("seed %d: %+v is read as %+v", seed, r, again)
		}
		if r.raise(100); r.floor != 100 || len(r.above) > 0 || r.text() != "" {
			t.Fatalf("seed %d: %+v", seed, r)
		}
	}
}

func FuzzReadReleased(f *testing.F) {
	f.Add(int64(7), "released:AQEC")
	f.Add(int64(7), "of another program")
	f.Fuzz(func(t *testing.T, floor int64, metadata string) {
		if floor < 0 {
			return
		}
		r := readReleased(floor, metadata)
		if again := readReleased(r.floor, r.text()); !reflect.DeepEqual(again, r) {
			t.Errorf("%+v is read as %+v", r, again)
		}
	})
}
