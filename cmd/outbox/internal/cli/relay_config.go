package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// pair is a setting of a configuration, with its value.
type pair struct {
	name string
	text json.RawMessage
}

// value is a text, a number as it is written, true or false, or something that no setting may be.
func (s pair) value() (v any) {
	d := json.NewDecoder(bytes.NewReader(s.text))
	d.UseNumber()
	_ = d.Decode(&v) // the text was read before
	return v
}

// object is an object of JSON with its settings as they are written. A map would silently keep the
// last of two with the same name.
type object []pair

// UnmarshalJSON implements json.Unmarshaler.
func (o *object) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return errors.New("an object {...} was expected")
	}
	*o = object{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		s := pair{name: fmt.Sprint(name)}
		if err := d.Decode(&s.text); err != nil {
			return err
		}
		*o = append(*o, s)
	}
	return nil
}

// each returns one object for each text of the setting each: the text takes the place of {each} in the
// other settings. Without that setting it returns the object itself.
func (o object) each() (all []object, err error) {
	at := slices.IndexFunc(o, func(s pair) bool { return s.name == "each" })
	if at < 0 {
		return []object{o}, nil
	}
	var texts []string
	if err := json.Unmarshal(o[at].text, &texts); err != nil || len(texts) == 0 {
		return nil, errors.New(`each is no list of texts, such as ["-80", "80-"]`)
	}
	for _, text := range texts {
		quoted, err := json.Marshal(text)
		if err != nil {
			return nil, err
		}
		var one object
		for _, s := range slices.Delete(slices.Clone(o), at, at+1) {
			s.text = bytes.ReplaceAll(s.text, []byte("{each}"), quoted[1:len(quoted)-1])
			one = append(one, s)
		}
		all = append(all, one)
	}
	return all, nil
}

// outboxesOf reads the outboxes of a configuration.
func outboxesOf(text []byte) (list []object, wrong []error) {
	refuse := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("it is not JSON as `outbox relay --help` shows it: "+format, args...))
	}
	var file object
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&file); err != nil {
		if bad := (*json.SyntaxError)(nil); errors.As(err, &bad) {
			refuse("%s: %w", placeOf(text, bad.Offset), err)
			return nil, wrong
		}
		refuse("%w", err)
		return nil, wrong
	}
	if end := d.InputOffset(); !errors.Is(d.Decode(&struct{}{}), io.EOF) {
		rest := bytes.TrimLeft(text[end:], " \t\r\n")
		refuse("%s: there is more after its end: nobody would read it", placeOf(text, int64(len(text)-len(rest)+1)))
	}
	read := false
	for _, s := range file {
		switch {
		case s.name != "outboxes":
			refuse("%.64q is not known", s.name)
		case read:
			refuse("it has outboxes twice")
		default:
			read = true
			var parts []json.RawMessage
			if err := json.Unmarshal(s.text, &parts); err != nil {
				refuse("outboxes is no list")
			}
			for i, part := range parts {
				var o object
				if err := json.Unmarshal(part, &o); err != nil {
					refuse("outbox %d: %w", i+1, err)
				}
				each, err := o.each()
				if err != nil {
					refuse("outbox %d: %w", i+1, err)
				}
				list = append(list, each...)
			}
		}
	}
	return list, wrong
}

// placeOf names the place of the last byte that was read.
func placeOf(text []byte, offset int64) string {
	before := text[:min(max(offset-1, 0), int64(len(text)))]
	line := bytes.Count(before, []byte("\n"))
	return fmt.Sprintf("line %d, column %d", line+1, len(before)-bytes.LastIndexByte(before, '\n'))
}
