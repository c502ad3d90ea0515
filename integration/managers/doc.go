// Package managers tests what docs/transaction-managers.md says, against the real thing: transaction
// managers, pools and wrappers of drivers that services have already.
package managers
