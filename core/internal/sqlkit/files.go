package sqlkit

import (
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

// File is one versioned change of a schema, from the folder schema/<dialect>: 0001_init.up.sql and
// 0001_init.down.sql.
type File struct {
	Version  int
	Name     string
	Up, Down string
}

// Files reads the changes of a dialect in ascending order of versions.
func Files(fsys fs.ReadFileFS, d core.Dialect) ([]File, error) {
	dir := path.Join("schema", string(d))
	entries, err := fs.ReadDir(fsys, dir)
	if err != nil {
		return nil, err
	}
	var all []File
	for _, e := range entries { // sorted by name
		base, up := strings.CutSuffix(e.Name(), ".up.sql")
		if !up {
			continue
		}
		number, name, _ := strings.Cut(base, "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("schema file %s: %w", e.Name(), err)
		}
		f := File{Version: version, Name: name}
		for suffix, dest := range map[string]*string{".up.sql": &f.Up, ".down.sql": &f.Down} {
			text, err := fsys.ReadFile(path.Join(dir, base+suffix))
			if err != nil {
				return nil, err
			}
			*dest = string(text)
		}
		all = append(all, f)
	}
	return all, nil
}
