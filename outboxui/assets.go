package outboxui

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"net/http"
	"strings"

	"github.com/ormoutbox/ormoutbox/core/ops"
)

//go:embed templates style.css live.js
var files embed.FS

// assetsPath is the folder of the stylesheet and the script. No outbox can have that name.
const assetsPath = "-"

// asset is a file that a page loads. Its address has a hash of its content, so it can be kept.
type asset struct {
	kind    string
	content []byte
	hash    string
}

var assets = map[string]asset{
	"style.css": newAsset("style.css", "text/css; charset=utf-8"),
	"live.js":   newAsset("live.js", "text/javascript; charset=utf-8"),
}

func newAsset(name, kind string) asset {
	content, err := files.ReadFile(name)
	if err != nil {
		panic(err) //nolint:forbidigo // it is embedded, so a build without it fails its first test
	}
	sum := sha256.Sum256(content)
	return asset{kind, content, hex.EncodeToString(sum[:6])}
}

func (v *visit) asset(name string) {
	a, found := assets[name]
	if !found {
		v.missing("file")
		return
	}
	v.w.Header().Set("Content-Type", a.kind)
	if v.URL.Query().Get("v") == a.hash {
		v.w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	}
	if v.Method != http.MethodHead {
		_, _ = v.w.Write(a.content)
	}
}

// templates has a set for each page: the layout, the shared parts, and the page.
var templates = func() map[string]*template.Template {
	shared := template.Must(template.New("").Funcs(template.FuncMap{
		"say": ops.Printable, "prose": prose, "num": number, "span": span, "shape": Finding.shape,
		"planState": func(p ops.StoredPlan) state { return planState(&p) },
		"planTitle": planTitle, "list": func(all ...any) []any { return all },
		"asset": func(name string) string {
			return assetsPath + "/" + name + "?v=" + assets[name].hash
		},
	}).ParseFS(files, "templates/shared/*.html"))
	all := map[string]*template.Template{}
	names, err := files.ReadDir("templates")
	if err != nil {
		panic(err) //nolint:forbidigo // it is embedded, so a build without it fails its first test
	}
	for _, f := range names {
		if name, ok := strings.CutSuffix(f.Name(), ".html"); ok {
			all[name] = template.Must(template.Must(shared.Clone()).ParseFS(files, "templates/"+f.Name()))
		}
	}
	return all
}()
