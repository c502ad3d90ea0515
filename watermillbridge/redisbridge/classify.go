package redisbridge

import (
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core"
)

// unavailable has the first words of answers that are not the message's fault.
var unavailable = []string{
	// The server starts, or another server does the work.
	"LOADING", "BUSY", "MASTERDOWN", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "CROSSSLOT",
	"OOM", "MISCONF", "NOREPLICAS", // the server is full, cannot save, or has too few replicas
	"NOAUTH", "WRONGPASS", "NOPERM", "DENIED", // rights
	"WRONGTYPE",  // the topic's key is not a stream: every event gets this answer
	"UNKILLABLE", // a script blocks the server
}

// Some answers begin with the general ERR. They are recognised by their text.
var (
	unavailableTexts = []string{
		"max number of clients reached", "unknown command",
		"client sent auth, but no password is set", "dbindex is out of range",
	}
	permanentTexts = []string{
		"invalid bulk length", "invalid multibulk length", "query buffer limit",
		"string exceeds maximum allowed size",
	}
)

// Classify returns the class of an error of go-redis or watermill-redisstream, for
// watermillbridge.Config.Classifier:
//
//   - ClassPermanent: the message is larger than the server allows.
//   - ClassUnavailable: the server cannot be reached or used now. Examples: no connection is free;
//     the server loads its data, is a replica, is full (maxmemory), cannot save, or has too few
//     replicas; rights are missing; the topic's key is not a stream.
//   - ClassTransient: every other error, which relay.Config.Classifier then judges. It recognises
//     network errors.
func Classify(err error) core.Class {
	if errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) ||
		errors.Is(err, redis.ErrPoolExhausted) {
		return core.ClassUnavailable
	}
	answer, ok := errors.AsType[redis.Error](err)
	if !ok {
		return core.ClassTransient
	}
	text := answer.Error()
	word, rest, _ := strings.Cut(text, " ")
	if slices.Contains(unavailable, word) {
		return core.ClassUnavailable
	}
	rest = strings.ToLower(rest)
	for _, t := range permanentTexts {
		if strings.Contains(rest, t) {
			return core.ClassPermanent
		}
	}
	for _, t := range unavailableTexts {
		if strings.Contains(rest, t) {
			return core.ClassUnavailable
		}
	}
	return core.ClassTransient
}
