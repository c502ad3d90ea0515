package natsbridge

import (
	"slices"
	"strings"
	"testing"
)

func TestServers(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{
		"nats://one:4222":                        "nats://one:4222",
		"one:4222, two":                          "nats://one:4222 nats://two",
		"nats://u:pa,ss@one:4222":                "nats://u:pa,ss@one:4222",
		"nats://u:pa,ss@one:4222,two:4222":       "nats://u:pa,ss@one:4222 nats://u:pa,ss@two:4222",
		"nats://u:p@ss@one,two":                  "nats://u:p@ss@one nats://u:p@ss@two",
		"tls://u:p%2C%40@one,tls://v:q,r@two,":   "tls://u:p%2C%40@one tls://v:q,r@two",
		"nats://one,NATS://u:p@two,three":        "nats://one NATS://u:p@two NATS://u:p@three",
		"nats://u:p@s@one":                       "nats://u:p@s@one",
		"nats://token@one/, two/":                "nats://token@one/ nats://token@two/",
		"nats://u:p@one,v:q@two":                 "",
		"nats://one:4222,v:q@two":                "",
		"nats://one,token@two":                   "",
		"nats://to/ken@one":                      "",
		"nats://to%2Fken@one":                    "nats://to%2Fken@one",
		"ws://one,nats://u:pa,wss@two":           "ws://one nats://u:pa,wss@two",
		"nats://u:p@[::1]:4222,[fe80::1%25eth0]": "nats://u:p@[::1]:4222 nats://u:p@[fe80::1%25eth0]",
	} {
		got, err := servers(list)
		if (err != nil) != (want == "") || !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: %v, %v; want %s", list, got, err, want)
		}
	}
}
