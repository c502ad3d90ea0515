package cli

import (
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

// jsonStep is a command of the walk over all commands.
type jsonStep struct {
	args string // {event}, {message}, {effect}, {group} and {plan} are ids
	list string // the field with what it lists; empty: it lists nothing
	// rows: the list is one of rows that may not be all, and has "more" beside it.
	rows bool
	// empty: nothing is in the tables yet.
	empty bool
}

// jsonLists are commands that list.
var jsonLists = []jsonStep{
	{args: "list", list: "events", rows: true},
	{args: "dead", list: "events", rows: true},
	{args: "audit", list: "records", rows: true},
	{args: "keys", list: "keys", rows: true},
	{args: "groups", list: "groups", rows: true},
	{args: "inbox list", list: "messages", rows: true},
	{args: "effects list", list: "effects", rows: true},
	{args: "idempotency list", list: "keys", rows: true},
	{args: "plans", list: "plans", rows: true},
	{args: "plans list", list: "plans", rows: true},
	{args: "pauses", list: "pauses", rows: true},
	{args: "rates", list: "rates", rows: true},
	{args: "window list", list: "windows", rows: true},
	{args: "inbox", list: "handlers"},
	{args: "effects", list: "channels"},
	{args: "idempotency", list: "scopes"},
	{args: "status", list: "topics"},
}

// jsonBefore and jsonAfter are other commands. Those that list are called between them.
var jsonBefore, jsonAfter = []jsonStep{
	{args: "doctor", list: "findings"},
	{args: "version"},
	{args: "migrate up", list: "migrations", empty: true},
	{args: "migrate status", list: "tables"},
	{args: "migrate validate", list: "tables"},
	{args: "migrate get --dialect sqlite --above 99", list: "files", empty: true},
	{args: "migrate get", list: "files"},
	{args: "show {event}", list: "events"},
	{args: "explain {event}", list: "explanations"},
	{args: "history", list: "points"},
	{args: "tail --since 1h --limit 1"},
	{args: "probe --listen {listen}"},
	{args: "pause orders --reason x --yes"},
	{args: "resume orders --reason x --yes"},
	{args: "pause --tenant acme --reason x --yes"},
	{args: "rate orders --per-second 5 --reason x --yes"},
	{args: "window declare orders search --keep 1h --reason x --yes"},
	{args: "window withdraw orders search --reason x --yes"},
	{args: "window declare orders search --keep 1h --reason x --yes"},
	{args: "groups note {group} x"},
	{args: "groups mute {group} --for 1h --reason x"},
	{args: "groups unmute {group} --reason x"},
	{args: "keys reset --reason x --yes"},
	{args: "inbox redrive {message} --consumer mailer --reason x --dry-run"},
	{args: "inbox discard {message} --consumer mailer --reason x --dry-run"},
	{args: "inbox release --consumer mailer --from {queue} --dry-run", list: "groups"},
	{args: "effects redrive {effect} --reason x --dry-run"},
	{args: "effects discard {effect} --reason x --dry-run"},
	{args: "redrive {event} --reason x --dry-run"},
	{args: "discard {event} --reason x --dry-run"},
	{args: "edit {event} --header a=b --reason x --dry-run"},
	{args: "erase --aggregate customer/42 --dry-run"},
	{args: "redrive plan --reason x"},
	{args: "plans show {plan}"},
	{args: "redrive apply {plan} --dry-run"},
	{args: "plans pause {plan} --reason x --yes"},
}, []jsonStep{
	{args: "plans cancel {plan} --reason x --yes"},
	{args: "discard plan --reason x"},
	{args: "discard apply {plan} --yes"},
	{args: "replay plan --topic mails --reason x"},
	{args: "replay apply {plan} --dry-run"},
	{args: "migrate down --to 0 --tables keys --yes", list: "migrations"},
	{args: "migrate down --to 0 --tables inbox --yes --dry-run", list: "migrations"},
}

// With --json every command prints one object. A list is in a field with the name of its things,
// even an empty list. Beside rows that may not be all is "more".
func TestJSONOfEveryCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newSQLite)
	w.ok("migrate", "up", "--tables", "all")
	names := map[string]string{}
	walked, shapes := map[string]bool{}, jsonShapes{}
	walk := func(s jsonStep) map[string]json.RawMessage {
		t.Helper()
		args := strings.Fields(s.args)
		for i := range args {
			if name := strings.Trim(args[i], "{}"); name != args[i] {
				args[i] = names[name]
			}
		}
		c, _, err := NewRoot().Find(args)
		if err != nil {
			t.Fatalf("%s: %v", s.args, err)
		}
		walked[c.CommandPath()] = true
		var object map[string]json.RawMessage
		if code := w.json(&object, args...); code != ExitOK && code != ExitUnhealthy {
			t.Errorf("outbox %s: exit code %d\n%s", s.args, code, w.run(args...).err)
		}
		for name, text := range object {
			var value any
			if err := json.Unmarshal(text, &value); err != nil {
				t.Fatal(err)
			}
			shapes.add(c.CommandPath(), name, value)
		}
		if s.list == "" {
			return object
		}
		var list []map[string]any
		if err := json.Unmarshal(object[s.list], &list); err != nil || list == nil || len(list) == 0 != s.empty {
			t.Errorf("outbox %s: field %q is %.200s, %v", s.args, s.list, object[s.list], err)
		}
		if _, more := object["more"]; more != s.rows {
			t.Errorf("outbox %s: there is a field more: %t, want %t", s.args, more, s.rows)
		}
		return object
	}
	for _, s := range jsonLists {
		s.empty = true
		walk(s)
	}

	maps.Copy(names, w.populate(`{"status":"ok"}`))
	for _, s := range slices.Concat(jsonBefore, jsonLists, jsonAfter) {
		object := walk(s)
		var id string
		if json.Unmarshal(object["id"], &id) == nil && strings.Contains(s.args, " plan ") {
			names["plan"] = id
		}
	}

	walked["outbox relay"], walked["outbox ui"] = true, true // they run until they are stopped
	for _, c := range leaves(NewRoot()) {
		if !walked[c.CommandPath()] {
			t.Errorf("%s is not among the commands that are tried here", c.CommandPath())
		}
	}
	shapes.compare(t)
}

// populate puts something of each kind into the tables, and returns what the placeholders of the
// steps stand for. health is what a relay says of its health.
func (w *world) populate(health string) (names map[string]string) {
	w.Helper()
	names = map[string]string{}
	w.ok("window", "declare", "mails", "search", "--keep", "1h", "--reason", "x", "--yes")
	w.publish(core.Event{Type: "sent", Topic: "mails", Payload: []byte("{}")})
	w.drain(nil, core.BlockKey)
	w.publish(core.Event{Type: "order.placed", Topic: "orders", Key: "7", Payload: []byte("{}")})
	w.drain(core.Permanent(errNoTotal), core.BlockKey)
	names["message"] = core.NewEventID()
	w.failInbox("mailer", names["message"], true)
	parked := newParking(w)
	parked.park(core.NewEventID(), "ada")
	names["queue"] = parked.from
	names["effect"] = w.deadEffect("1")
	w.exec("INSERT INTO idempotency_key (scope, tenant, id, fingerprint, status, owner, fence, attempts, " +
		"created_at, updated_at, expires_at) VALUES ('POST /orders', '', '1', x'', 0, '', 1, 1, 1, 1, 1)")
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = rw.Write([]byte(health))
	}))
	w.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	must(w, err)
	names["listen"] = "127.0.0.1:" + port
	var dead deadPage
	w.json(&dead, "dead")
	names["event"] = dead.Events[0].ID
	var groups groupList
	w.json(&groups, "groups")
	names["group"] = groups.Groups[0].Fingerprint
	return names
}

// jsonShapes has the types of each field that a command has printed, by the command and the path of
// the field.
type jsonShapes map[[2]string]map[string]bool

func (s jsonShapes) add(command, path string, value any) {
	kind := ""
	switch value := value.(type) {
	case map[string]any:
		for name, v := range value {
			s.add(command, path+"."+name, v)
		}
		return
	case []any:
		for _, v := range value {
			s.add(command, path+"[]", v)
		}
		kind = "list"
	case string:
		kind = "text"
	case float64:
		kind = "number"
	case bool:
		kind = "boolean"
	case nil:
		kind = "null"
	}
	at := [2]string{command, path}
	if s[at] == nil {
		s[at] = map[string]bool{}
	}
	s[at][kind] = true
}

// compare requires the fields that are recorded, because other programs read them. The package
// integration/contracts says what a change needs.
func (s jsonShapes) compare(t *testing.T) {
	t.Helper()
	var b strings.Builder
	last := ""
	for _, at := range slices.SortedFunc(maps.Keys(s), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		if at[0] != last {
			last = at[0]
			b.WriteString("== " + last + "\n")
		}
		b.WriteString(at[1] + ": " + strings.Join(slices.Sorted(maps.Keys(s[at])), " or ") + "\n")
	}
	path := filepath.Join("..", "..", "..", "..", "integration", "contracts", "testdata", "cli-json.golden")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != b.String() {
		t.Errorf("integration/contracts/testdata/cli-json.golden has other fields than the commands print. If that "+
			"is meant, run `go test ./cmd/outbox/internal/cli -run JSONOfEvery -update`, see `git diff`, and add a "+
			"line to CHANGELOG.md; after the first tag it also needs a new version. The commands print\n%s", b.String())
	}
}
