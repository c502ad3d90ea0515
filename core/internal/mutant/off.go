//go:build !mutant

package mutant

// Active is the mistake that is built in: none.
const Active = ""
