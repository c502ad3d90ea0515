package pgxoutbox

import (
	"fmt"
	"sync/atomic"
	"testing"
)

func TestKeepsStatements(t *testing.T) {
	for _, text := range []string{
		"SELECT 1", "insert into a values (1)", "WITH x AS (SELECT 1) SELECT * FROM x;", "SET LOCAL a = 'b'",
		"DECLARE c CURSOR FOR SELECT 1", "DROP TABLE a", "LOCK TABLE a", "COPY a FROM STDIN",
	} {
		if !keeps(text, false) || !keeps(text, true) {
			t.Errorf("%q: deallocates nothing", text)
		}
	}
	for _, text := range []string{
		"", "DISCARD ALL", "discard plans", "DEALLOCATE a", "DO $$ $$", "do$$ $$", "Do '...'", "CALL p()", "call\tp()",
		" SELECT 1", "/**/DISCARD ALL", "SAVEPOINT s", "EXECUTE a", "PREPARE a AS SELECT 1",
	} {
		if keeps(text, false) || keeps(text, true) {
			t.Errorf("%q may deallocate", text)
		}
	}
	const several = "SELECT 1; DISCARD ALL"
	if keeps(several, false) || !keeps(several, true) { // which the server refuses
		t.Errorf("%q: %t, extended %t", several, keeps(several, false), keeps(several, true))
	}
}

func TestStatementsAreCounted(t *testing.T) {
	p := statements{off: &atomic.Bool{}, direct: true}
	if p.of("a", inserts) != nil {
		t.Error("prepared with its first execution")
	}
	a := p.of("a", inserts)
	if a == nil || p.of("a", inserts) != a || p.of("b", inserts) != nil {
		t.Fatal("not prepared with its second execution")
	}
	for n := range 10 * mostCounted {
		p.of(fmt.Sprint(n), inserts)
		if len(p.count) > mostCounted {
			t.Fatalf("%d texts are counted", len(p.count))
		}
	}
	for n := range 2 * mostKept {
		for range 2 {
			p.of(fmt.Sprint("again ", n), inserts)
		}
	}
	if len(p.kept) != mostKept || p.of("a", inserts) != a {
		t.Errorf("%d statements are kept", len(p.kept))
	}
	if p.of("claim", claims) != nil || p.of("claim", claims) == nil {
		t.Error("INSERTs have displaced a claim")
	}
	p.off.Store(true)
	if p.of("a", inserts) != nil {
		t.Error("prepared after that was turned off")
	}
	if (&statements{}).of("a", inserts) != nil {
		t.Error("prepared on a connection on which nothing is")
	}
}
