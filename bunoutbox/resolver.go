package bunoutbox

import (
	"context"
	"reflect"

	"github.com/uptrace/bun"
)

// rawOf returns a statement that runs where q runs. Bun asks a ConnResolver where that is. Every raw
// query calls itself a SELECT, which a resolver may send to a replica, so it is asked with q.
func rawOf(ctx context.Context, q query, text string, args ...any) *bun.RawQuery {
	raw := q.NewRaw(text, args...)
	conn := field(raw, "conn")
	if !conn.IsValid() || conn.Kind() != reflect.Interface || !conn.IsNil() {
		return raw
	}
	resolver := field(raw.DB(), "resolver")
	if !resolver.IsValid() || resolver.Type() != reflect.TypeFor[bun.ConnResolver]() || resolver.IsNil() {
		return raw
	}
	resolver = reflect.NewAt(resolver.Type(), resolver.Addr().UnsafePointer()).Elem()
	if chosen := resolver.Interface().(bun.ConnResolver).ResolveConn(ctx, q); chosen != nil {
		return raw.Conn(chosen)
	}
	return raw.Conn(raw.DB().DB)
}

// field returns a field that Bun does not export. The result is not valid where Bun has no such
// field some day.
func field(of any, name string) reflect.Value { return reflect.ValueOf(of).Elem().FieldByName(name) }
