package natsbridge

import (
	"errors"
	"net/url"
	"regexp"
	"strings"

	"github.com/ormoutbox/ormoutbox/watermillbridge/internal/link"
)

// nextURL is where a further URL begins in a list of them. A password may have commas of its own.
var nextURL = regexp.MustCompile(`,\s*[A-Za-z]+://`)

// servers returns the URL of each server of a list such as
// nats://user:password@host:4222,host:4222,nats://other:password@host:4222.
func servers(list string) (all []string, err error) {
	for list != "" {
		one, rest := list, ""
		if next := nextURL.FindStringIndex(list); next != nil {
			one, rest = list[:next[0]], list[next[0]+1:]
		}
		list = rest
		scheme, hosts, found := strings.Cut(strings.TrimSpace(one), "://")
		if !found {
			scheme, hosts = "nats", scheme
		}
		at := strings.LastIndexByte(hosts, '@') + 1
		user := hosts[:at]
		if strings.ContainsAny(user, "/?#") {
			return nil, errors.New("write %2F, %3F and %23 for / ? # of a user or a password")
		}
		if ambiguous(user) {
			return nil, errors.New("it is not clear where a user begins: write nats:// before each server that has " +
				"one, and %2C for a comma of a user or a password")
		}
		for host := range strings.SplitSeq(hosts[at:], ",") {
			if host = strings.TrimSpace(host); host == "" {
				continue
			}
			server := scheme + "://" + user + host
			if _, err := url.Parse(server); err != nil {
				return nil, link.ParseError(err)
			}
			all = append(all, server)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("it has no server")
	}
	return all, nil
}

// ambiguous reports whether user:password@ may be a server and the user of the next one.
func ambiguous(user string) bool {
	name, password, _ := strings.Cut(strings.TrimSuffix(user, "@"), ":")
	return strings.Contains(name, ",") || strings.Contains(password, ",") && strings.ContainsAny(password, ":@")
}
