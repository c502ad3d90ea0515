// Package enum names the values of enumerations.
package enum

import "fmt"

// Name returns the name of v, which is the index of names. A value without a name is its kind and
// number.
func Name[T ~uint8](names []string, v T, kind string) string {
	if int(v) < len(names) && names[v] != "" {
		return names[v]
	}
	return fmt.Sprintf("%s(%d)", kind, v)
}
