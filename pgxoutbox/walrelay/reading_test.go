package walrelay

import "testing"

func TestReading(t *testing.T) {
	var r reading
	if r.inTx {
		t.Fatal("in a transaction at first")
	}
	r.begin(10)
	if !r.inTx || !r.next(position{10, 1}) || !r.next(position{10, 2}) {
		t.Fatal("the events of a transaction are not read")
	}

	// The connection is lost in the transaction. The next one begins with an earlier transaction.
	r.lost()
	if r.inTx {
		t.Error("in a transaction without a connection")
	}
	r.begin(5)
	if r.next(position{5, 1}) {
		t.Error("an earlier transaction is read again")
	}
	r.end(5)
	r.begin(10)
	if r.next(position{10, 1}) || r.next(position{10, 2}) {
		t.Error("an event is read twice")
	}
	if !r.next(position{10, 3}) {
		t.Error("the rest of the transaction is left out")
	}
	r.end(10)
	if r.inTx {
		t.Error("in a transaction after its end")
	}

	// A transaction that was read to its end has no more events.
	r.lost()
	r.begin(10)
	if r.next(position{10, 1}) || r.next(position{10, 4}) {
		t.Error("a whole transaction is read again")
	}
	r.end(10)
	r.begin(20)
	if !r.next(position{20, 1}) {
		t.Error("the next transaction is left out")
	}
}
