// Package upgrade runs the code of a version before beside the present code, on the present tables.
// testdata/before.tar.gz is that code; scripts/before makes it of a commit.
package upgrade
