// Package clusters runs producers and relays on the nodes of clusters of databases, and compares what
// was committed with what was published. Its tests have the build tag clusters: `make test-clusters`
// starts the clusters and runs them.
package clusters
