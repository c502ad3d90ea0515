// Package entoutbox makes events part of the transactions of Ent.
package entoutbox
