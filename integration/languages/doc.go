// Package languages has consumers in Python, Node and Java, and the test that runs them against the
// bridges: `make test-languages`. The Python, Node and Java programs are written to be copied.
package languages
