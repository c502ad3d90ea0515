package redisbridge

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
)

func TestDecodeMetadata(t *testing.T) {
	t.Parallel()
	many := message.Metadata{}
	for n := range 70_000 {
		many[fmt.Sprint(n)] = ""
	}
	for name, md := range map[string]message.Metadata{
		"none": nil, "one": {"a": "b"}, "empty": {"": ""}, "many": many,
		"long": {strings.Repeat("n", 40): strings.Repeat("v", 300), "x": strings.Repeat("v", 70_000)},
		"some": {
			"0": "", "1": "", "2": "", "3": "", "4": "", "5": "", "6": "", "7": "", "8": "", "9": "", "a": "",
			"b": "", "c": "", "d": "", "e": "", "f": "", "g": "Käse",
		},
	} {
		text := string(encodeMetadata(md))
		got, err := decodeMetadata(text)
		if err != nil || !maps.Equal(got, md) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		for _, wrong := range []string{text + "x", strings.TrimSuffix(text, text[max(0, len(text)-1):])} {
			if _, err := decodeMetadata(wrong); err == nil && wrong != "" {
				t.Errorf("%s: no error for %.20q", name, wrong)
			}
		}
	}
}

func FuzzDecodeMetadata(f *testing.F) {
	f.Add("\x81\xa1a\xa1b")
	f.Add("\xdf\xff\xff\xff\xff\xa0")
	f.Add("\xde\x00\x01\xdb\xff\xff\xff\xff")
	f.Fuzz(func(t *testing.T, text string) {
		md, err := decodeMetadata(text)
		if err != nil {
			return
		}
		if again, err := decodeMetadata(string(encodeMetadata(md))); err != nil || !maps.Equal(md, again) {
			t.Errorf("%q: %v", md, err)
		}
	})
}
