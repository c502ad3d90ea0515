package outboxtest

import (
	"database/sql"
	"regexp"
	"slices"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

type txSavepoint struct {
	name string
	mark int // length of Tx.undo at the savepoint
}

var comments = regexp.MustCompile(`(?s)/\*.*?\*/|--[^\n]*`)

// control runs transaction control as the database does. known is false for any other statement.
func (t *Tx) control(query string) (known bool, err error) {
	t.repo.mu.Lock()
	defer t.repo.mu.Unlock()
	if t.state == txEnded {
		return false, sql.ErrTxDone
	}
	words := strings.Fields(strings.TrimRight(strings.TrimSpace(comments.ReplaceAllString(query, " ")), "; \t\r\n"))
	if len(words) == 0 {
		return true, nil
	}
	verb, name := strings.ToUpper(words[0]), t.name(words[len(words)-1])
	if t.state == txAborted && verb != "ROLLBACK" {
		return false, databaseError(t.repo.dialect, errTxAborted)
	}
	switch verb {
	case "SAVEPOINT":
		t.savepoint(name)
	case "RELEASE":
		i := t.find(name)
		if i < 0 {
			return true, t.fail(errNoSavepoint)
		}
		t.savepoints = t.savepoints[:i]
	case "ROLLBACK":
		return true, t.rollback(words, name)
	case "COMMIT":
		t.end(true)
	default:
		return false, nil
	}
	return true, nil
}

// rollback runs ROLLBACK, or ROLLBACK TO a savepoint.
func (t *Tx) rollback(words []string, name string) error {
	if !slices.ContainsFunc(words, func(w string) bool { return strings.EqualFold(w, "TO") }) {
		t.end(false)
		return nil
	}
	i := t.find(name)
	if i < 0 {
		return t.fail(errNoSavepoint)
	}
	t.undoTo(t.savepoints[i].mark)
	t.savepoints = t.savepoints[:i+1]
	t.state = txOpen
	return nil
}

func (t *Tx) savepoint(name string) {
	// On MySQL the new savepoint replaces the old one of the same name. Elsewhere it hides the old
	// one.
	if i := t.find(name); i >= 0 && t.repo.dialect == core.MySQL {
		t.savepoints = append(t.savepoints[:i], t.savepoints[i+1:]...)
	}
	t.savepoints = append(t.savepoints, txSavepoint{name: name, mark: len(t.undo)})
}

func (t *Tx) find(name string) int {
	for i, s := range slices.Backward(t.savepoints) {
		if s.name == name {
			return i
		}
	}
	return -1
}

// fail returns an error of the database, and changes the transaction as the database does.
func (t *Tx) fail(kind errorKind) error {
	if t.repo.dialect == core.Postgres {
		t.state = txAborted
	}
	return databaseError(t.repo.dialect, kind)
}

// name returns the identity of a savepoint. PostgreSQL keeps the case of a quoted name. The other
// databases always ignore case.
func (t *Tx) name(word string) string {
	bare := strings.Trim(word, "\"`")
	if bare != word && t.repo.dialect == core.Postgres {
		return bare
	}
	return strings.ToLower(bare)
}
