package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// module is the path of the root module.
const module = "github.com/ormoutbox/ormoutbox"

// workshop unpacks and builds suites.
type workshop struct {
	root     string // of the repository
	dir      string // what is kept for the next run
	archives string // the folder with archives that the caller named, or ""
	done     map[string]built
}

type built struct {
	path string
	err  error
}

// once makes something, or returns what it made before.
func (w *workshop) once(what string, do func() (string, error)) (string, error) {
	if b, ok := w.done[what]; ok {
		return b.path, b.err
	}
	path, err := do()
	if w.done == nil {
		w.done = map[string]built{}
	}
	w.done[what] = built{path, err}
	return path, err
}

// program returns the test program of a suite, for all databases the same.
func (w *workshop) program(ctx context.Context, s *suite) (string, error) {
	return w.once("program of "+s.name, func() (string, error) { return w.build(ctx, s) })
}

// sources returns the archive of a suite, or the folder of its module.
func (w *workshop) sources(ctx context.Context, s *suite) (string, error) {
	return w.once("sources of "+s.name, func() (string, error) {
		if s.released != "" {
			return w.download(ctx, s)
		}
		return w.get(ctx, s)
	})
}

// download returns the folder of a module that has its tests.
func (w *workshop) download(ctx context.Context, s *suite) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", s.released)
	cmd.Dir, cmd.Env = filepath.Join(w.root, "integration"), append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	var module struct{ Dir, Error string }
	if wrong := json.Unmarshal(out, &module); wrong != nil || module.Dir == "" {
		return "", fmt.Errorf("get %s: %s: %w", s.released, module.Error, errors.Join(err, wrong))
	}
	return module.Dir, nil
}

func (w *workshop) build(ctx context.Context, s *suite) (string, error) {
	sources, err := w.sources(ctx, s)
	if err != nil {
		return "", err
	}
	name := strings.ToLower(s.name)
	dir := filepath.Join(w.dir, name)
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if s.released != "" {
		err = os.CopyFS(dir, os.DirFS(sources))
	} else {
		err = unpack(sources, dir)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", sources, err)
	}
	if err := s.prepare(dir); err != nil {
		return "", err
	}
	folder := filepath.Join(dir, filepath.FromSlash(s.folder))
	args := append([]string{"mod", "edit"}, s.modEdits...)
	for _, m := range s.modules {
		args = append(args, "-require="+module+m+"@v0.0.0", "-replace="+module+m+"="+w.root+m)
	}
	env := []string{"GOWORK=off", "GOFLAGS=-mod=mod -buildvcs=false", "CGO_ENABLED=0"}
	if s.cgo {
		env[2] = "CGO_ENABLED=1"
	}
	// What is run stays in the folder of the suite, where the tests find their files.
	program := filepath.Join(folder, "peers.test")
	for _, args := range [][]string{args, {"test", "-c", "-o", program, "."}} {
		if err := command(ctx, folder, env, "go", args...); err != nil {
			return "", err
		}
	}
	return program, nil
}

// get returns the archive that the caller has. If there is none, git gets the sources.
func (w *workshop) get(ctx context.Context, s *suite) (string, error) {
	if w.archives != "" {
		given := filepath.Join(w.archives, s.archive)
		if _, err := os.Stat(given); !errors.Is(err, fs.ErrNotExist) {
			return given, err
		}
	}
	kept := filepath.Join(w.dir, s.archive)
	if _, err := os.Stat(kept); !errors.Is(err, fs.ErrNotExist) {
		return kept, err
	}
	if err := os.MkdirAll(w.dir, 0o755); err != nil {
		return "", err
	}
	clone, err := os.MkdirTemp(w.dir, "clone-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(clone)
	env := []string{"GIT_TERMINAL_PROMPT=0"}
	for _, args := range [][]string{
		{"init", "-q"},
		{"fetch", "-q", "--depth", "1", s.repository, s.commit},
		{"archive", "--format=tgz", "-o", kept + ".part", "FETCH_HEAD"},
	} {
		if err := command(ctx, clone, env, "git", args...); err != nil {
			return "", fmt.Errorf("no %s (PEERS names the folder of archives), and git does not get the sources: %w",
				s.archive, err)
		}
	}
	return kept, os.Rename(kept+".part", kept)
}

// prepare puts our small files between the suite and its database.
func (s *suite) prepare(dir string) error {
	for _, e := range s.edits {
		name := filepath.Join(dir, filepath.FromSlash(e.file))
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		changed := strings.ReplaceAll(string(text), e.from, e.to)
		if changed == string(text) {
			return fmt.Errorf("%s has no %q", name, e.from)
		}
		if err := os.WriteFile(name, []byte(changed), 0o644); err != nil {
			return err
		}
	}
	for _, file := range []string{"told.go.txt", s.file} {
		text, err := small.ReadFile("suites/" + file)
		if err != nil {
			return err
		}
		name := "peers_" + strings.TrimSuffix(file, ".go.txt") + "_test.go"
		name = filepath.Join(dir, filepath.FromSlash(s.folder), name)
		changed := strings.Replace(string(text), "package PACKAGE\n", "package "+s.pkg+"\n", 1)
		if err := os.WriteFile(name, []byte(changed), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// unpack unpacks files and folders of an archive.
func unpack(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir) // an archive writes nothing elsewhere
	if err != nil {
		return err
	}
	defer root.Close()
	r := tar.NewReader(z)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.Clean(filepath.FromSlash(h.Name))
		switch h.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(name, 0o755)
		case tar.TypeReg:
			err = unpackFile(root, name, r)
		}
		if err != nil {
			return err
		}
	}
}

func unpackFile(root *os.Root, name string, from io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := root.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// command runs a program. The error has the command and what it printed.
func command(ctx context.Context, dir string, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
