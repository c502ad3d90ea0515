package outboxui

import (
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

var (
	hiddenField = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)
	tag         = regexp.MustCompile(`(?s)<(style|script)[^>]*>.*?</(style|script)>|<[^>]*>`)
	blanks      = regexp.MustCompile(`\s+`)
)

// hidden returns the hidden fields of the form of a page.
func hidden(t *testing.T, page string) url.Values {
	t.Helper()
	form := url.Values{}
	for _, m := range hiddenField.FindAllStringSubmatch(page, -1) {
		form.Add(html.UnescapeString(m[1]), html.UnescapeString(m[2]))
	}
	if len(form) == 0 {
		t.Fatalf("the page has no form:\n%s", textOf(page))
	}
	return form
}

// textOf is what people read of a page.
func textOf(page string) string {
	return strings.TrimSpace(blanks.ReplaceAllString(html.UnescapeString(tag.ReplaceAllString(page, " ")), " "))
}

// says requires that a page says something.
func says(t *testing.T, page string, texts ...string) {
	t.Helper()
	read := textOf(page)
	for _, text := range texts {
		if !strings.Contains(read, text) {
			t.Errorf("the page does not say %q:\n%s", text, read)
		}
	}
}
