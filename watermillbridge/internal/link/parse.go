package link

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
)

var quoted = regexp.MustCompile(`"[^"]*"`)

// ParseError is an error of reading a URL, without what it quotes of the URL: of u:pass/word@host it
// would call ":pass" an invalid port.
func ParseError(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return errors.New(quoted.ReplaceAllString(err.Error(), `"..."`))
}

// Problems collects the mistakes in a configuration.
type Problems []error

// Add adds a problem if there is one.
func (p *Problems) Add(bad bool, format string, args ...any) {
	if bad {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}
