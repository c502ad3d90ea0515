package pgxoutbox

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

const testBegin = "begin isolation level serializable"

// encode returns messages as they are on the wire.
func encode(t testing.TB, messages ...pgproto3.Message) (b []byte) {
	t.Helper()
	for _, m := range messages {
		var err error
		if b, err = m.(interface{ Encode([]byte) ([]byte, error) }).Encode(b); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func beginExtended(t testing.TB) []byte {
	t.Helper()
	return encode(t, &pgproto3.Parse{Query: testBegin}, &pgproto3.Bind{}, &pgproto3.Execute{})
}

// writtenCases returns messages that pgx writes, and the messages that must reach the server when
// BEGIN is owed.
func writtenCases(t testing.TB) map[string]struct{ in, want []byte } {
	t.Helper()
	large := bytes.Repeat([]byte("x"), 3*copyMost)
	cases := map[string]struct{ in, want []byte }{}
	add := func(name string, in, want []byte) { cases[name] = struct{ in, want []byte }{in, want} }
	sync := encode(t, &pgproto3.Sync{})
	add("a query",
		encode(t, &pgproto3.Query{String: "select 1"}, &pgproto3.Query{String: "select 2"}),
		encode(t, &pgproto3.Query{String: testBegin + ";select 1"}, &pgproto3.Query{String: "select 2"}))
	add("an empty query", encode(t, &pgproto3.Query{}), encode(t, &pgproto3.Query{String: testBegin + ";"}))
	add("a large query", encode(t, &pgproto3.Query{String: string(large)}),
		encode(t, &pgproto3.Query{String: testBegin + ";" + string(large)}))
	for name, in := range map[string][]byte{
		"a parse":        encode(t, &pgproto3.Parse{Name: "a", Query: "select 1"}, &pgproto3.Describe{Name: "a"}),
		"a bind":         encode(t, &pgproto3.Bind{PreparedStatement: "a"}, &pgproto3.Execute{}),
		"a describe":     encode(t, &pgproto3.Describe{Name: "a", ObjectType: 'S'}),
		"a close":        encode(t, &pgproto3.Close{Name: "a", ObjectType: 'S'}),
		"a large bind":   encode(t, &pgproto3.Bind{Parameters: [][]byte{large}}, &pgproto3.Execute{}),
		"two statements": encode(t, &pgproto3.Parse{}, &pgproto3.Bind{}, &pgproto3.Parse{}, &pgproto3.Bind{}),
	} {
		add(name, slices.Concat(in, sync), slices.Concat(beginExtended(t), in, sync))
	}
	add("terminate", encode(t, &pgproto3.Terminate{}), encode(t, &pgproto3.Terminate{}))
	add("a sync", slices.Concat(sync, encode(t, &pgproto3.Query{String: "x"})),
		slices.Concat(sync, encode(t, &pgproto3.Query{String: testBegin + ";x"})))
	return cases
}

// BEGIN comes before the first statement, wherever the writes are divided, and only once.
func TestFrontendWrites(t *testing.T) {
	t.Parallel()
	for name, tc := range writtenCases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step := max(1, len(tc.in)/500)
			for at := 0; at <= len(tc.in); at += step {
				var out bytes.Buffer
				f := newFrontend(nil, &out, pgproto3.NewFrontend)
				f.owe(testBegin)
				for _, part := range [][]byte{tc.in[:at], tc.in[at:]} {
					if n, err := f.Write(part); n != len(part) || err != nil {
						t.Fatalf("divided at %d: wrote %d of %d: %v", at, n, len(part), err)
					}
				}
				if !bytes.Equal(out.Bytes(), tc.want) {
					t.Fatalf("divided at %d: sent %.200q, want %.200q", at, out.Bytes(), tc.want)
				}
			}
			var out bytes.Buffer
			f := newFrontend(nil, &out, pgproto3.NewFrontend)
			f.owe(testBegin)
			for i := range tc.in {
				if _, err := f.Write(tc.in[i : i+1]); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(out.Bytes(), tc.want) {
				t.Fatalf("byte by byte: sent %.200q, want %.200q", out.Bytes(), tc.want)
			}
		})
	}
}

type failingWriter struct{ after int }

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.after == 0 {
		return 0, io.ErrClosedPipe
	}
	w.after--
	return len(p), nil
}

// pgx repeats a statement of which nothing was written.
func TestFrontendWriteFails(t *testing.T) {
	t.Parallel()
	small := encode(t, &pgproto3.Query{String: "select 1"})
	large := encode(t, &pgproto3.Query{String: string(make([]byte, 2*copyMost))})
	for _, tc := range []struct {
		p     []byte
		after int
		some  bool
	}{{small, 0, false}, {large, 0, false}, {large, 1, true}} {
		f := newFrontend(nil, &failingWriter{tc.after}, pgproto3.NewFrontend)
		f.owe(testBegin)
		if n, err := f.Write(tc.p); (n > 0) != tc.some || !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%d bytes, fails after %d: wrote %d, %v", len(tc.p), tc.after, n, err)
		}
	}
}

// answered has the answers of a server, and the part of them that pgx must see.
type answered struct {
	before, in, want []byte // before has the answers that came before the statement was sent
	query, refused   bool
}

func answeredCases(t testing.TB) map[string]answered {
	t.Helper()
	fail := func(pos int32) pgproto3.Message {
		return &pgproto3.ErrorResponse{Severity: "ERROR", Code: "42601", Message: "mistake", Position: pos}
	}
	ready := func(status byte) pgproto3.Message { return &pgproto3.ReadyForQuery{TxStatus: status} }
	begun := &pgproto3.CommandComplete{CommandTag: []byte("BEGIN")}
	selected := &pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")}
	row := &pgproto3.DataRow{Values: [][]byte{[]byte("1"), nil}}
	notice := &pgproto3.NoticeResponse{Severity: "NOTICE", Message: "hear"}
	async := []pgproto3.Message{
		notice, &pgproto3.ParameterStatus{Name: "a", Value: "b"},
		&pgproto3.NotificationResponse{PID: 1, Channel: "c", Payload: "p"},
	}
	all := func(parts ...[]pgproto3.Message) []byte { return encode(t, slices.Concat(parts...)...) }
	m := func(messages ...pgproto3.Message) []pgproto3.Message { return messages }
	shift := int32(len(testBegin) + 1)
	own := m(&pgproto3.ParseComplete{}, &pgproto3.BindComplete{}, begun)
	rest := m(&pgproto3.ParseComplete{}, &pgproto3.BindComplete{}, row, selected, ready('T'))
	return map[string]answered{
		"query": {
			in: all(m(begun, row, selected, ready('T'))), want: all(m(row, selected, ready('T'))), query: true,
		},
		"extended": {in: all(own, rest), want: all(rest)},
		"query, notices": {
			in: all(async, m(begun), async, m(selected), async, m(ready('T'))), query: true,
			want: all(async, async, m(selected), async, m(ready('T'))),
		},
		"extended, notices": {
			in:   all(async, own[:1], async, own[1:2], async, own[2:], rest, async),
			want: all(async, async, async, rest, async),
		},
		"query that fails": {
			in: all(m(begun, fail(shift+8), ready('E'))), want: all(m(fail(8), ready('E'))), query: true,
		},
		"query with a notice that has a position": {
			in:   all(m(begun, &pgproto3.NoticeResponse{Message: "m", Position: shift + 3}, selected, ready('T'))),
			want: all(m(&pgproto3.NoticeResponse{Message: "m", Position: 3}, selected, ready('T'))), query: true,
		},
		"query, then another that fails": {
			in:   all(m(begun, selected, ready('T'), fail(shift+8), ready('E'))),
			want: all(m(selected, ready('T'), fail(shift+8), ready('E'))), query: true,
		},
		"statement that fails": {in: all(own, m(fail(8), ready('E'))), want: all(m(fail(8), ready('E')))},
		"query with no valid syntax": {
			in: all(m(fail(shift+2), ready('I'))), want: all(m(fail(2), ready('I'))), query: true, refused: true,
		},
		"BEGIN is refused": {
			in: all(own[:2], m(fail(0), ready('I'))), want: all(m(fail(0), ready('I'))), refused: true,
		},
		"BEGIN is refused in a query": {
			in: all(m(fail(0), ready('I'))), want: all(m(fail(0), ready('I'))), query: true, refused: true,
		},
		"after much": {before: all(async, rest), in: all(own, rest), want: all(rest)},
		"large": {
			in:   all(own, m(&pgproto3.DataRow{Values: [][]byte{make([]byte, 5000)}}), rest),
			want: all(m(&pgproto3.DataRow{Values: [][]byte{make([]byte, 5000)}}), rest),
		},
	}
}

// parts is a reader that returns its bytes in parts of the given sizes, and the rest as a whole.
type parts struct {
	b     []byte
	sizes []int
}

func (p *parts) Read(to []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := min(len(p.b), len(to))
	if len(p.sizes) > 0 {
		n = min(n, p.sizes[0])
		p.sizes = p.sizes[1:]
	}
	n = copy(to, p.b[:n])
	p.b = p.b[n:]
	return n, nil
}

func readAll(t testing.TB, f *frontend, size int) (got []byte) {
	t.Helper()
	buf := make([]byte, size)
	for {
		n, err := f.Read(buf)
		got = append(got, buf[:n]...)
		if errors.Is(err, io.EOF) {
			return got
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// read returns what pgx sees of the answers.
func (a answered) read(t testing.TB, sizes []int, size int) (got []byte, f *frontend) {
	t.Helper()
	before := &parts{b: a.before, sizes: sizes}
	f = newFrontend(before, io.Discard, pgproto3.NewFrontend)
	got = readAll(t, f, size)
	f.owe(testBegin)
	var statement pgproto3.Message = &pgproto3.Parse{}
	if a.query {
		statement = &pgproto3.Query{String: "select 1"}
	}
	if _, err := f.Write(encode(t, statement)); err != nil {
		t.Fatal(err)
	}
	f.r = &parts{b: a.in, sizes: sizes}
	return append(got, readAll(t, f, size)...), f
}

// pgx sees the answers to its statement and none of those to BEGIN, wherever the reads are divided.
func TestFrontendReads(t *testing.T) {
	t.Parallel()
	for name, tc := range answeredCases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := slices.Concat(tc.before, tc.want)
			check := func(how string, at int, sizes []int, size int) {
				t.Helper()
				got, f := tc.read(t, sizes, size)
				if !bytes.Equal(got, want) {
					t.Fatalf("%s %d: read %q, want %q", how, at, got, want)
				}
				if f.refused() != tc.refused || f.unsent() || f.busy() {
					t.Fatalf("%s %d: refused %t, unsent %t, busy %t", how, at, f.refused(), f.unsent(), f.busy())
				}
			}
			for at := range tc.in {
				check("divided at", at, []int{at}, 8192)
			}
			for size := 1; size < 20; size++ {
				check("buffers of", size, nil, size)
			}
		})
	}
}

// A notice is half read when a transaction begins.
func TestFrontendBeginsAmidAMessage(t *testing.T) {
	t.Parallel()
	notice := encode(t, &pgproto3.NoticeResponse{Severity: "NOTICE", Message: "hear", Code: "00000"})
	for name, tc := range answeredCases(t) {
		for at := range notice {
			f := newFrontend(&parts{b: notice[:at]}, io.Discard, pgproto3.NewFrontend)
			got := readAll(t, f, 8192)
			f.owe(testBegin)
			var statement pgproto3.Message = &pgproto3.Bind{}
			if tc.query {
				statement = &pgproto3.Query{String: "select 1"}
			}
			if _, err := f.Write(encode(t, statement)); err != nil {
				t.Fatal(err)
			}
			f.r = &parts{b: slices.Concat(notice[at:], tc.in)}
			got = append(got, readAll(t, f, 8192)...)
			if want := slices.Concat(notice, tc.want); !bytes.Equal(got, want) {
				t.Fatalf("%s, divided at %d: read %q, want %q", name, at, got, want)
			}
		}
	}
}

// A transaction without statements sends nothing.
func TestFrontendForgets(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	f := newFrontend(nil, &out, pgproto3.NewFrontend)
	f.owe(testBegin)
	if !f.unsent() || !f.forget() || f.forget() || f.unsent() {
		t.Error("a BEGIN that was taken back is still owed")
	}
	query := encode(t, &pgproto3.Query{String: "select 1"})
	if _, err := f.Write(query); err != nil || !bytes.Equal(out.Bytes(), query) {
		t.Errorf("sent %q, %v", out.Bytes(), err)
	}
}

// pgx gets the same, however the answers are divided, and without a BEGIN it gets all of them.
func FuzzFrontendReads(f *testing.F) {
	for _, tc := range answeredCases(f) {
		f.Add(tc.in, uint8(3), tc.query, true)
	}
	f.Fuzz(func(t *testing.T, in []byte, size uint8, query, owed bool) {
		in = complete(in) // an incomplete message may be held back
		front := newFrontend(&parts{b: in}, io.Discard, pgproto3.NewFrontend)
		if owed {
			front.owe(testBegin)
			var statement pgproto3.Message = &pgproto3.Parse{}
			if query {
				statement = &pgproto3.Query{String: "select 1"}
			}
			if _, err := front.Write(encode(t, statement)); err != nil {
				t.Fatal(err)
			}
		}
		got := readAll(t, front, int(size)+1)
		whole := newFrontend(&parts{b: in}, io.Discard, pgproto3.NewFrontend)
		if owed {
			whole.wait.Store(int32(answerParse))
			if query {
				whole.wait.Store(int32(answerQuery))
				whole.shift.Store(int32(len(testBegin) + 1))
			}
		}
		if again := readAll(t, whole, 1<<20); !bytes.Equal(got, again) {
			t.Errorf("read %q in parts of %d, and %q as a whole", got, int(size)+1, again)
		}
		if !owed && !bytes.Equal(got, in) {
			t.Errorf("read %q of %q", got, in)
		}
	})
}

// complete returns the complete messages at the beginning of b.
func complete(b []byte) []byte {
	at := 0
	for len(b)-at >= headerLen {
		n := headerLen + max(bodyLen(b[at:]), 0)
		if n > len(b)-at {
			break
		}
		at += n
	}
	return b[:at]
}

// However the writes are divided, the server gets the same.
func FuzzFrontendWrites(f *testing.F) {
	for _, tc := range writtenCases(f) {
		if len(tc.in) < 1000 {
			f.Add(tc.in, uint8(1))
		}
	}
	f.Fuzz(func(t *testing.T, in []byte, size uint8) {
		var whole, out bytes.Buffer
		a, b := newFrontend(nil, &whole, pgproto3.NewFrontend), newFrontend(nil, &out, pgproto3.NewFrontend)
		a.owe(testBegin)
		b.owe(testBegin)
		if _, err := a.Write(in); err != nil {
			t.Fatal(err)
		}
		for part := range slices.Chunk(in, int(size)+1) {
			if _, err := b.Write(part); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(whole.Bytes(), out.Bytes()) || a.unsent() != b.unsent() {
			t.Errorf("sent %q, and in parts %q", whole.Bytes(), out.Bytes())
		}
	})
}
