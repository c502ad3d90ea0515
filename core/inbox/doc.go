// Package inbox remembers which events a consumer has processed.
package inbox
