// Package redisonce keeps the keys of package once in Redis.
package redisonce
