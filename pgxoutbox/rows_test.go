package pgxoutbox

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

type bits [16]byte

func (b *bits) ScanBytes(v []byte) error {
	*b = bits{}
	copy(b[:], v)
	return nil
}

// What decode reads is the value that was written. All else is left to pgx.
func TestDecode(t *testing.T) {
	t.Parallel()
	const text, binary = pgtype.TextFormatCode, pgtype.BinaryFormatCode
	minus := []byte("\xff\xff\xff\xff\xff\xff\xff\xfe") // -2
	for name, c := range map[string]struct {
		oid    uint32
		format int16
		value  []byte
		to     any
		want   any // nil: pgx reads it
	}{
		"text":                     {pgtype.TextOID, binary, []byte("a"), new(string), "a"},
		"text in place of another": {pgtype.VarcharOID, text, []byte("b"), new("a"), "b"},
		"empty text after another": {pgtype.TextOID, text, []byte{}, new("a"), ""},
		"no text":                  {pgtype.TextOID, text, nil, new(string), nil},
		"a number as a text":       {pgtype.Int4OID, binary, []byte{0, 0, 0, 1}, new(string), nil},
		"bigint":                   {pgtype.Int8OID, binary, minus, new(int64), int64(-2)},
		"integer":                  {pgtype.Int4OID, binary, minus[4:], new(int), -2},
		"smallint":                 {pgtype.Int2OID, binary, minus[6:], new(int64), int64(-2)},
		"a number in digits":       {pgtype.Int8OID, text, []byte("12345678"), new(int64), nil},
		"no number":                {pgtype.Int8OID, binary, nil, new(int64), nil},
		"numeric":                  {pgtype.NumericOID, binary, []byte{0, 1, 0, 0, 0, 0, 0, 0}, new(int64), nil},
		"bytes":                    {pgtype.ByteaOID, binary, []byte{1, 2}, new([]byte), "\x01\x02"},
		"bytes in digits":          {pgtype.ByteaOID, text, []byte(`\x0102`), new([]byte), nil},
		"no bytes after some":      {pgtype.ByteaOID, binary, nil, new([]byte("a")), ""},
		"jsonb":                    {pgtype.JSONBOID, text, []byte("{}"), new([]byte), "{}"},
		"jsonb behind its version": {pgtype.JSONBOID, binary, []byte("\x01{}"), new([]byte), nil},
		"uuid": {
			pgtype.UUIDOID, binary, []byte("0123456789abcdef"), new(bits),
			"0123456789abcdef",
		},
		"uuid in digits":            {pgtype.UUIDOID, text, []byte("0123456789abcdef"), new(bits), nil},
		"a target that is not ours": {pgtype.TextOID, text, []byte("a"), new(any), nil},
	} {
		done, err := decode(&pgconn.FieldDescription{DataTypeOID: c.oid, Format: c.format}, c.value, c.to)
		var got any
		switch to := c.to.(type) {
		case *string:
			got = *to
		case *int64:
			got = *to
		case *int:
			got = *to
		case *[]byte:
			got = string(*to)
		case *bits:
			got = string(to[:])
		}
		if err != nil || done != (c.want != nil) || done && got != c.want {
			t.Errorf("%s: %v, read: %t, %v; want %v", name, got, done, err, c.want)
		}
	}
}

// The bytes of a row are overwritten by the next one.
func TestDecodeCopies(t *testing.T) {
	t.Parallel()
	var to []byte
	value := []byte("a")
	field := &pgconn.FieldDescription{DataTypeOID: pgtype.ByteaOID, Format: pgtype.BinaryFormatCode}
	done, err := decode(field, value, &to)
	value[0] = 'b'
	if !done || err != nil || string(to) != "a" {
		t.Errorf("%t, %v, %q", done, err, to)
	}
}
