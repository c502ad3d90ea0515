// Package bunoutbox makes events part of the transactions of Bun.
package bunoutbox
