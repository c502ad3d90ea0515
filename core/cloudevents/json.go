package cloudevents

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"strconv"
	"strings"
	"unicode/utf8"
)

// encodeJSON returns e in the JSON format. e is valid.
func encodeJSON(e Event) []byte {
	var b bytes.Buffer
	b.Grow(len(e.Data)*4/3 + 512)
	b.WriteByte('{')
	for i, a := range e.attributes() {
		if i > 0 {
			b.WriteByte(',')
		}
		writeString(&b, a.name)
		b.WriteByte(':')
		writeString(&b, a.value)
	}
	switch {
	case len(e.Data) == 0:
	case isJSONData(e.DataContentType) && utf8.Valid(e.Data) && json.Valid(e.Data):
		b.WriteString(`,"data":`)
		b.Write(e.Data)
	default:
		b.WriteString(`,"data_base64":"`)
		text := base64.NewEncoder(base64.StdEncoding, &b)
		_, _ = text.Write(e.Data) // a bytes.Buffer has no errors
		_ = text.Close()
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.Bytes()
}

func writeString(b *bytes.Buffer, s string) {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s)       // a string and a bytes.Buffer have no errors
	b.Truncate(b.Len() - 1) // the line feed
}

// isJSONData reports whether a content type denotes JSON in UTF-8. No content type does not,
// because bytes of unknown type must stay what they are.
func isJSONData(t string) bool {
	_, params, _ := mime.ParseMediaType(t)
	charset := params["charset"]
	return isJSONType(t) && (charset == "" || strings.EqualFold(charset, "utf-8"))
}

// decodeJSON reads an event in the JSON format.
func decodeJSON(body []byte) (Event, error) {
	attrs, data, err := readJSON(body)
	if err != nil {
		return Event{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	_, typed := attrs[attrDataContentType]
	if data.json != nil && !typed {
		attrs[attrDataContentType] = "application/json" // the format's implied type
	}
	e, err := fromAttributes(attrs)
	if err != nil {
		return Event{}, err
	}
	if e.Data, err = data.bytes(e.DataContentType); err != nil {
		return Event{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return e, nil
}

// jsonData has the members of an event that are no attributes. Nil: absent.
type jsonData struct {
	json   json.RawMessage
	base64 json.RawMessage
}

func (d jsonData) bytes(mediaType string) ([]byte, error) {
	switch {
	case d.json != nil && d.base64 != nil:
		return nil, errors.New("both data and data_base64 are there")
	case d.base64 != nil:
		var s string
		if err := json.Unmarshal(d.base64, &s); err != nil {
			return nil, errors.New("data_base64 is not a string")
		}
		data, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return nil, fmt.Errorf("data_base64: %w", err)
		}
		return orNil(data), nil
	case d.json == nil:
		return nil, nil
	case isJSONType(mediaType):
		return d.json, nil
	}
	if string(d.json) == "null" {
		return nil, nil
	}
	var s string
	if err := json.Unmarshal(d.json, &s); err != nil {
		return nil, fmt.Errorf("data of type %.60q is not a string", mediaType)
	}
	return orNil([]byte(s)), nil
}

// isJSONType is isJSONData with any charset: inside a JSON document, data has the document's
// charset.
func isJSONType(t string) bool {
	media, _, err := mime.ParseMediaType(t)
	return err == nil && (strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json"))
}

func orNil(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// readJSON returns the attributes of an event in the JSON format as text, and its data.
func readJSON(body []byte) (map[string]string, jsonData, error) {
	var data jsonData
	if !utf8.Valid(body) {
		return nil, data, errors.New("the document is not valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, data, errors.New("the document is not a JSON object")
	}
	attrs, seen := map[string]string{}, map[string]bool{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return nil, data, err
		}
		name, _ := token.(string) // a key is a string
		if seen[name] {
			return nil, data, fmt.Errorf("member %.40q appears twice", name)
		}
		seen[name] = true
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, data, err
		}
		switch {
		case name == memberData:
			data.json = raw
		case string(raw) == "null": // not set
		case name == memberDataBase64:
			data.base64 = raw
		default:
			text, err := canonical(raw, isReserved(name))
			if err != nil {
				return nil, data, fmt.Errorf("attribute %.40q %w", name, err)
			}
			attrs[name] = text
		}
	}
	if _, err := dec.Token(); err != nil {
		return nil, data, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, data, errors.New("the document goes on after its end")
	}
	return attrs, data, nil
}

// canonical returns the text of an attribute's value. Core attributes are strings.
func canonical(raw json.RawMessage, core bool) (string, error) {
	switch c := raw[0]; {
	case c == '"':
		var s string
		err := json.Unmarshal(raw, &s)
		return s, err
	case core:
		return "", errors.New("is not a string")
	case c == 't', c == 'f':
		return string(raw), nil
	case c == '-', c >= '0' && c <= '9':
		n, err := strconv.ParseInt(string(raw), 10, 32)
		if err != nil {
			return "", errors.New("is a number, but none of 32 bits")
		}
		return strconv.FormatInt(n, 10), nil
	}
	return "", errors.New("is neither text, nor a number, nor a boolean")
}
