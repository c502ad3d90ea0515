// Package docs holds tests of the documentation: every Go block of the README files and of the
// pages under docs compiles, and the program on the first page prints what the page says.
package docs
