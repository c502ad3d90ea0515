// Package docs holds tests of what is written and shown to users: every Go block of the README files
// and of the pages under docs compiles, the programs of pages and examples do what the pages say, and
// each module brings what it promises and no more.
package docs
