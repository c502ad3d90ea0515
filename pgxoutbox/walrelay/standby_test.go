package walrelay

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// Each host is asked by itself, with TLS first if the address wants that, and whether it can be
// written to or not.
func TestHosts(t *testing.T) {
	for address, want := range map[string][]string{
		"postgres://u:p@a:1/x?sslmode=prefer":                                     nil,
		"postgres://u:p@a:1,a:2/x?sslmode=disable":                                {"a1", "a2"},
		"postgres://u:p@a:1,b:1/x?sslmode=prefer&target_session_attrs=read-write": {"a1", "b1"},
	} {
		config, err := pgx.ParseConfig(address)
		if err != nil {
			t.Fatal(err)
		}
		got := hosts(config)
		if len(got) != len(want) {
			t.Fatalf("%s has %d hosts, want %v", address, len(got), want)
		}
		for i, host := range got {
			ways := len(config.Fallbacks)+1 == len(want)*(1+len(host.Fallbacks)) // with and without TLS
			if host.Host+string(rune('0'+host.Port)) != want[i] || host.ValidateConnect != nil || !ways {
				t.Errorf("%s: host %d is %s:%d, fallbacks %d", address, i, host.Host, host.Port, len(host.Fallbacks))
			}
		}
	}
}
