// Package cli has the commands of the program outbox. Run executes one, with the streams and the
// environment that its caller gives it, so that tests need no process.
package cli
