// Package upgrade runs two versions of the code on the same tables. Until a version is tagged, both
// are the present one, and the later one has the further migrations of testdata/next. Afterwards
// the version before is the last tag, from the module proxy.
package upgrade
