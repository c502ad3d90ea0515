// Package integration holds the tests that need servers and the drivers, ORMs and broker clients that the released modules must
// not pull in. It is never tagged and never imported.
package integration
