package pgxoutbox

import (
	"bytes"
	"strconv"
)

// answer is the next expected answer to BEGIN.
type answer int32

const (
	answerNone  answer = iota // none: all was read, or nothing was sent
	answerQuery               // CommandComplete, to the BEGIN in a Query
	answerParse               // ParseComplete, then BindComplete and CommandComplete
	answerBind
	answerComplete
)

// answers is the reading half of a frontend. It follows where messages begin, all the time: part of
// a notice may have been read before the statement that takes BEGIN along.
type answers struct {
	head   [headerLen]byte
	headed int  // bytes of head that were read
	out    bool // these bytes were handed on already
	left   int  // bytes left of the body of a message
	drop   bool // that message is an answer to BEGIN
	// the message is changed when it is complete; nil: it is handed on as it comes
	whole []byte

	ready []byte // handed on at the next Read
	buf   []byte // memory of ready
	err   error  // of the Read after which ready is left
}

// Read implements io.Reader.
func (f *frontend) Read(p []byte) (int, error) {
	a := &f.answers
	for {
		if len(a.ready) > 0 {
			n := copy(p, a.ready)
			a.ready = a.ready[n:]
			return n, nil
		}
		if err := a.err; err != nil {
			a.err = nil
			return 0, err
		}
		n, err := f.r.Read(p)
		if !f.busy() {
			a.follow(p[:n])
			return n, err
		}
		a.ready = f.filter(a.buf[:0], p[:n])
		a.buf, a.err = a.ready, err
		if n == 0 && err == nil {
			return 0, nil
		}
	}
}

// busy reports whether something may have to be taken out or changed.
func (f *frontend) busy() bool {
	a := &f.answers
	return f.wait.Load() != int32(answerNone) || f.shift.Load() != 0 || a.drop && a.left > 0 || a.whole != nil ||
		a.headed > 0 && !a.out
}

// follow records where messages begin in bytes that are handed on unchanged.
func (a *answers) follow(p []byte) {
	for len(p) > 0 {
		if a.left > 0 {
			n := min(a.left, len(p))
			a.left -= n
			p = p[n:]
			continue
		}
		n := copy(a.head[a.headed:], p)
		a.headed += n
		a.out = true
		p = p[n:]
		if a.headed == headerLen {
			a.headed, a.left, a.drop = 0, max(bodyLen(a.head[:]), 0), false
		}
	}
}

// filter appends to to the part of p for pgx.
func (f *frontend) filter(to, p []byte) []byte {
	a := &f.answers
	for len(p) > 0 {
		if a.left == 0 {
			if a.headed == 0 {
				a.out = false
			}
			n := copy(a.head[a.headed:], p)
			if a.out { // its beginning was handed on before the statement was sent
				to = append(to, p[:n]...)
			}
			a.headed += n
			p = p[n:]
			if a.headed < headerLen {
				break
			}
			a.headed, a.left = 0, max(bodyLen(a.head[:]), 0)
			a.drop, a.whole = false, nil
			if !a.out {
				to = f.begins(to)
			}
			if a.left > 0 {
				continue
			}
		}
		n := min(a.left, len(p))
		switch {
		case a.whole != nil:
			a.whole = append(a.whole, p[:n]...)
		case !a.drop:
			to = append(to, p[:n]...)
		}
		a.left -= n
		p = p[n:]
		if a.left == 0 && a.whole != nil {
			to = append(to, moved(a.whole, int(f.shift.Load()))...)
			a.whole = nil
		}
	}
	return to
}

// changedMost is the length of the longest message that is changed.
const changedMost = 1 << 20

// begins decides about the message whose header has just been read.
func (f *frontend) begins(to []byte) []byte {
	a := &f.answers
	typ := a.head[0]
	switch wait := answer(f.wait.Load()); {
	case wait == answerNone, typ == 'N', typ == 'S', typ == 'A': // notice, parameter, notification
	case wait == answerParse && typ == '1':
		f.wait.Store(int32(answerBind))
		a.drop = true
	case wait == answerBind && typ == '2':
		f.wait.Store(int32(answerComplete))
		a.drop = true
	case (wait == answerQuery || wait == answerComplete) && typ == 'C':
		f.wait.Store(int32(answerNone))
		a.drop = true
	default: // an error: BEGIN was refused, or never executed because a Query has no valid syntax
		f.failed.Store(true)
		f.wait.Store(int32(answerNone))
	}
	if a.drop {
		return to
	}
	if f.shift.Load() != 0 {
		switch {
		case (typ == 'E' || typ == 'N') && a.left > 0 && a.left <= changedMost:
			a.whole = append([]byte(nil), a.head[:]...)
			return to
		case typ == 'Z': // the answers to the Query end
			f.shift.Store(0)
		}
	}
	return append(to, a.head[:]...)
}

// moved returns an error or notice whose position counts from the text that pgx has sent.
func moved(message []byte, shift int) []byte {
	fields := message[headerLen:]
	for at := 0; at < len(fields) && fields[at] != 0; {
		n := bytes.IndexByte(fields[at:], 0)
		if n < 0 {
			break
		}
		if fields[at] == 'P' {
			if pos, err := strconv.Atoi(string(fields[at+1 : at+n])); err == nil && pos > shift {
				body := append([]byte(nil), fields[:at+1]...)
				body = strconv.AppendInt(body, int64(pos-shift), 10)
				body = append(body, fields[at+n:]...)
				return append(header(nil, message[0], len(body)), body...)
			}
		}
		at += n + 1
	}
	return message
}
