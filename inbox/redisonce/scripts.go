package redisonce

import (
	_ "embed" // the scripts
	"fmt"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/head.lua
	headText string
	//go:embed lua/acquire.lua
	acquireText string
	//go:embed lua/extend.lua
	extendText string
	//go:embed lua/complete.lua
	completeText string
	//go:embed lua/release.lua
	releaseText string
)

// Each script is one atomic step. The client sends its digest, and its text if Redis does not have
// the script.
var (
	acquireScript  = redis.NewScript(headText + acquireText)
	extendScript   = redis.NewScript(headText + extendText)
	completeScript = redis.NewScript(headText + completeText)
	releaseScript  = redis.NewScript(headText + releaseText)
)

// reply is the answer of a script: a word and values.
type reply []any

func (r reply) word() string { return r.text(0) }

// text returns an element that is a text. It is empty for nil and for an element that is not there.
func (r reply) text(i int) string {
	if i >= len(r) {
		return ""
	}
	s, _ := r[i].(string)
	return s
}

// number returns an element that is an integer, or 0.
func (r reply) number(i int) int64 {
	if i >= len(r) {
		return 0
	}
	n, _ := r[i].(int64)
	return n
}

func (r reply) unknown() error {
	return fmt.Errorf("redisonce: the script answered %.200q", fmt.Sprint([]any(r)))
}
