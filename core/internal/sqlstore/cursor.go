package sqlstore

import (
	"encoding/base64"
	"encoding/json"
)

// Cursor returns the place where a page of a list ends, as a text for the next page. place is a
// struct of texts and numbers.
func Cursor(place any) string {
	text, _ := json.Marshal(place) //nolint:errchkjson // texts and numbers
	return base64.RawURLEncoding.EncodeToString(text)
}

// ReadCursor reads what Cursor has returned into the place that place points to.
func ReadCursor(cursor string, place any) error {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, place)
}
