// Package ui holds tests of the operators' page on real databases and in a real browser.
package ui
