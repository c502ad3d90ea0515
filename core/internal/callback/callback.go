// Package callback joins the optional callbacks of observers.
package callback

import "slices"

// Present returns the observers that are not nil.
func Present[O any](observers ...*O) []*O {
	return slices.DeleteFunc(slices.Clone(observers), func(o *O) bool { return o == nil })
}

// Each1 returns a function that calls a callback of each observer, where it is set.
func Each1[O, A any](observers []*O, callback func(*O) func(A)) func(A) {
	all := set(observers, callback, func(f func(A)) bool { return f != nil })
	if len(all) == 1 {
		return all[0]
	}
	return func(a A) {
		for _, f := range all {
			f(a)
		}
	}
}

// Each2 is Each1 for callbacks with two arguments.
func Each2[O, A, B any](observers []*O, callback func(*O) func(A, B)) func(A, B) {
	all := set(observers, callback, func(f func(A, B)) bool { return f != nil })
	if len(all) == 1 {
		return all[0]
	}
	return func(a A, b B) {
		for _, f := range all {
			f(a, b)
		}
	}
}

// Each3 is Each1 for callbacks with three arguments.
func Each3[O, A, B, C any](observers []*O, callback func(*O) func(A, B, C)) func(A, B, C) {
	all := set(observers, callback, func(f func(A, B, C)) bool { return f != nil })
	if len(all) == 1 {
		return all[0]
	}
	return func(a A, b B, c C) {
		for _, f := range all {
			f(a, b, c)
		}
	}
}

func set[O, F any](observers []*O, callback func(*O) F, isSet func(F) bool) (all []F) {
	for _, o := range observers {
		if f := callback(o); isSet(f) {
			all = append(all, f)
		}
	}
	return all
}
