package truth_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

// program is what one seed makes: transactions, one after another.
type program struct {
	seed    uint64
	variant int // how the ORM is set up
	txs     []transaction
}

// transaction is a transaction, or statements outside of one.
type transaction struct {
	outside bool
	end     end
	steps   []step
}

// end is how a transaction or a savepoint ends.
type end int

const (
	kept end = iota
	rolledBack
	panicked
)

// step is one statement: a call of the ORM, which may send several.
type step struct {
	kind      int
	seed      uint64 // of what the kind draws
	savepoint bool
	end       end  // of the savepoint
	swallow   bool // an error does not end the transaction
	bare      bool // outside: without the transaction that the ORM begins by itself
	ctx       life
}

// life is how long the context of a step lives.
type life int

const (
	alive life = iota
	endedBefore
	endsAfter // the first write
)

// draw draws the program of a seed.
func drawProgram(seed uint64, kinds, variants int) program {
	r := rand.New(rand.NewPCG(seed, 1))
	one := func(of int) bool { return r.IntN(of) == 0 }
	p := program{seed: seed, variant: r.IntN(variants)}
	for range 1 + r.IntN(4) {
		tx := transaction{outside: one(4)}
		if !tx.outside && one(5) {
			tx.end = end(1 + r.IntN(2))
		}
		for range 1 + r.IntN(4) {
			s := step{kind: r.IntN(kinds), seed: r.Uint64()}
			switch {
			case tx.outside:
				s.bare = one(3)
			case one(4):
				s.savepoint = true
				s.end = end(r.IntN(3))
			}
			s.swallow = one(2)
			switch {
			case one(30):
				s.ctx = endedBefore
			case !tx.outside && one(30):
				s.ctx = endsAfter
			}
			tx.steps = append(tx.steps, s)
		}
		p.txs = append(p.txs, tx)
	}
	return p
}

// simpler returns programs that are a little smaller than p.
func (p program) simpler() (all []program) {
	change := func(tx int, fn func(*transaction)) {
		q := p
		q.txs = slices.Clone(p.txs)
		q.txs[tx].steps = slices.Clone(p.txs[tx].steps)
		fn(&q.txs[tx])
		if len(q.txs[tx].steps) == 0 {
			q.txs = slices.Delete(q.txs, tx, tx+1)
		}
		all = append(all, q)
	}
	for i := range p.txs {
		change(i, func(tx *transaction) { tx.steps = nil })
	}
	if p.variant > 0 {
		q := p
		q.variant = 0
		all = append(all, q)
	}
	for i, tx := range p.txs {
		for n := range tx.steps {
			change(i, func(tx *transaction) { tx.steps = slices.Delete(tx.steps, n, n+1) })
		}
		if tx.end != kept {
			change(i, func(tx *transaction) { tx.end = kept })
		}
		for n, s := range tx.steps {
			if plain := (step{kind: s.kind, seed: s.seed}); s != plain {
				change(i, func(tx *transaction) { tx.steps[n] = plain })
				change(i, func(tx *transaction) { tx.steps[n].savepoint, tx.steps[n].end = false, kept })
				change(i, func(tx *transaction) { tx.steps[n].ctx = alive })
				change(i, func(tx *transaction) { tx.steps[n].bare = false })
			}
		}
	}
	return slices.DeleteFunc(all, func(q program) bool { return len(q.txs) == 0 || fmt.Sprint(q) == fmt.Sprint(p) })
}

// shrink returns the smallest program that it finds for which fails still holds.
func shrink(p program, fails func(program) bool) program {
	tries := 0
again:
	for _, q := range p.simpler() {
		if tries++; tries > 200 {
			return p
		}
		if fails(q) {
			p = q
			goto again
		}
	}
	return p
}

// text returns a program as the code of its ORM. code is the code of a step.
func (p program) text(variant string, code func(step) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "// %s\n", variant)
	names := map[end]string{kept: "return nil", rolledBack: "return errRollBack", panicked: "panic(errPanic)"}
	for _, tx := range p.txs {
		in := ""
		if !tx.outside {
			b.WriteString("db.Transaction(func(db) error {\n")
			in = "\t"
		}
		for _, s := range tx.steps {
			var notes []string
			note := func(ok bool, text string) {
				if ok {
					notes = append(notes, text)
				}
			}
			note(s.bare, "with SkipDefaultTransaction")
			note(s.ctx == endedBefore, "its context has ended")
			note(s.ctx == endsAfter, "its context ends right after its first write")
			note(!tx.outside && s.swallow, "an error is ignored")
			line := code(s)
			if len(notes) > 0 {
				line += " // " + strings.Join(notes, ", ")
			}
			if s.savepoint {
				const text = "db.Transaction(func(db) error { // a savepoint\n%[1]s\t%[2]s\n%[1]s\t%[3]s\n%[1]s})"
				line = fmt.Sprintf(text, in, line, names[s.end])
			}
			b.WriteString(in + line + "\n")
		}
		if !tx.outside {
			b.WriteString(in + names[tx.end] + "\n})\n")
		}
	}
	return b.String()
}

// draw draws what a statement consists of.
type draw struct {
	*rand.Rand
	dialect core.Dialect
}

func (s step) draw(d core.Dialect) *draw {
	return &draw{Rand: rand.New(rand.NewPCG(s.seed, 2)), dialect: d}
}

func (d *draw) one(of int) bool { return d.IntN(of) == 0 }

func pick[T any](d *draw, of ...T) T { return of[d.IntN(len(of))] }

// id is a generated key. There are rows with those up to 4, at most.
func (d *draw) id() int64 { return 1 + d.Int64N(5) }

// key is a key that is a text. MariaDB and MySQL take K1 for k1.
func (d *draw) key() string { return pick(d, "k1", "k2", "k3", "k4", "k5", "k6", "K1") }

func (d *draw) shop() string { return pick(d, "a", "a", "b", "a,b") }
func (d *draw) code() string { return pick(d, "1", "1", "2", "b,1") }
func (d *draw) name() string { return pick(d, "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9") }
func (d *draw) qty() int64   { return d.Int64N(4) }

// condition is a condition of any table, as text and arguments.
type condition struct {
	text string
	args []any
}

func (d *draw) condition() condition {
	switch d.IntN(6) {
	case 0:
		return condition{"qty > ?", []any{d.qty()}}
	case 1:
		return condition{"qty = ?", []any{d.qty()}}
	case 2:
		return condition{"name = ? -- by name", []any{pick(d, "a", "b", "n1", "n2", "x")}}
	case 3:
		return condition{"qty = ? OR name = ?", []any{d.qty(), pick(d, "a", "n1", "y")}}
	case 4:
		return condition{"qty IN (SELECT qty FROM tags WHERE name <> ?)", []any{pick(d, "a", "b")}}
	default:
		return condition{"1 = 1", nil}
	}
}

// uncommented is a condition without a comment, which would hide what the ORM writes behind it.
func (d *draw) uncommented() condition {
	c := d.condition()
	c.text, _, _ = strings.Cut(c.text, " --")
	return c
}
