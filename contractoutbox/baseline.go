package contractoutbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// Baseline has the events of a release, from the asyncapi.json that Write made for it. A catalog is
// compared with it: see Generator.Compatible. It is safe for use by several goroutines.
type Baseline struct {
	name     string
	messages map[string][]released // by event type
}

// released is one version of an event.
type released struct {
	message
	schema *jsonschema.Schema
}

// Errors of the functions that read a release.
var (
	// ErrNotReleased: there is no tag, or the tag has no asyncapi.json in the folder: the catalog
	// was not released yet. A shallow clone has no tags either: CI has to fetch them.
	ErrNotReleased = errors.New("contractoutbox: no release has the documents")
	// errBaseline: the asyncapi.json was not written by this package.
	errBaseline = errors.New("contractoutbox: not a document of this package")
)

// ReadBaseline reads a release from the asyncapi.json in a folder: a copy of the documents that the
// last release had. The error wraps ErrNotReleased if the file is not there.
func ReadBaseline(dir string) (*Baseline, error) {
	content, err := os.ReadFile(filepath.Join(dir, asyncAPIFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrNotReleased, err)
	}
	if err != nil {
		return nil, fmt.Errorf("contractoutbox: %w", err)
	}
	return parseBaseline(dir, content)
}

// GitBaseline reads a release from a tag or another revision: the asyncapi.json that dir had there.
// An empty tag is the last tag that the present commit descends from. It needs the command git. The
// error wraps ErrNotReleased if there is no tag, or if the tag has no such file.
func GitBaseline(ctx context.Context, dir, tag string) (*Baseline, error) {
	if _, err := git(ctx, dir, "rev-parse", "--git-dir"); err != nil {
		return nil, err
	}
	if tag == "" {
		last, err := git(ctx, dir, "describe", "--tags", "--abbrev=0")
		if err != nil {
			return nil, fmt.Errorf("%w: there is no tag (a shallow clone has none: git fetch --tags --unshallow): %w",
				ErrNotReleased, err)
		}
		tag = strings.TrimSpace(string(last))
	}
	if _, err := git(ctx, dir, "rev-parse", "--verify", "--quiet", "--end-of-options", tag+"^{commit}"); err != nil {
		return nil, fmt.Errorf("contractoutbox: there is no revision %q: %w", tag, err)
	}
	content, err := git(ctx, dir, "show", "--end-of-options", tag+":./"+asyncAPIFile)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrNotReleased, tag, err)
	}
	return parseBaseline(tag, content)
}

func git(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("contractoutbox: git %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

func parseBaseline(name string, content []byte) (*Baseline, error) {
	var doc document
	if err := json.Unmarshal(content, &doc); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errBaseline, name, err)
	}
	r := &Baseline{name: name, messages: map[string][]released{}}
	for id, m := range doc.Components.Messages {
		schema := &jsonschema.Schema{}
		if err := json.Unmarshal(m.Payload, schema); err != nil {
			return nil, fmt.Errorf("%w: %s: the payload of %s: %w", errBaseline, name, id, err)
		}
		if m.EventType == "" || m.EventVersion < 1 {
			return nil, fmt.Errorf("%w: %s: %s has no x-event-type or x-event-version", errBaseline, name, id)
		}
		r.messages[m.EventType] = append(r.messages[m.EventType], released{m, schema})
	}
	if len(r.messages) == 0 {
		return nil, fmt.Errorf("%w: %s has no messages", errBaseline, name)
	}
	return r, nil
}
