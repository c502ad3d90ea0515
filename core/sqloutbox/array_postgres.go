package sqloutbox

import (
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

// textArray writes a list as the text of an array.
func textArray(items []string) string {
	size := 2
	for _, s := range items {
		size += len(s) + 3
	}
	var b strings.Builder
	b.Grow(size)
	b.WriteByte('{')
	for i, s := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		for j := 0; j < len(s); j++ {
			if s[j] == '"' || s[j] == '\\' {
				b.WriteByte('\\')
			}
			b.WriteByte(s[j])
		}
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

// textArrayOrNil is NULL for a nil list.
func textArrayOrNil(items []string) any {
	if items == nil {
		return nil
	}
	return textArray(items)
}

// column makes an array of one field of many values.
func column[T any](items []T, field func(*T) string) string {
	texts := make([]string, len(items))
	for i := range items {
		texts[i] = field(&items[i])
	}
	return textArray(texts)
}

func uuidArray(ids []core.RowID) string {
	return column(ids, func(id *core.RowID) string { return id.String() })
}
