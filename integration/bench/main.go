// Package bench measures the outbox against what people would use instead.
package main

func main() {}
