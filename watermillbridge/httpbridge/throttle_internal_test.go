package httpbridge

import (
	"errors"
	"net/netip"
	"testing"
	"time"
)

// A short pause does not end a longer one that an answer to another request has asked for.
func TestTheLongerPauseCounts(t *testing.T) {
	t.Parallel()
	var paused throttle
	paused.pause("https://a.example", time.Hour)
	paused.pause("https://a.example", time.Second)
	if left := paused.left("https://a.example"); left < time.Minute {
		t.Errorf("%s are left of an hour", left)
	}
}

func TestOnlyPublicAddressesArePermitted(t *testing.T) {
	t.Parallel()
	for _, a := range []string{
		"1.1.1.1", "8.8.8.8", "172.32.0.1", "192.169.0.1", "100.128.0.1", "168.63.129.15", "223.255.255.255",
		"2606:4700::1111", "2a00:1450:4001::200e", "2001:4860:4860::8888", "64:ff9b::8.8.8.8", "2002:808:808::1",
		"::ffff:8.8.8.8",
	} {
		if !isPublic(netip.MustParseAddr(a)) {
			t.Errorf("%s is refused", a)
		}
	}
	for _, a := range []string{
		"127.0.0.1", "127.255.0.1", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
		"169.254.169.254", "169.254.170.2", // metadata of AWS, Google, Azure and others; of containers
		"168.63.129.16", "100.100.100.200", "192.0.0.192", // metadata of Azure, Alibaba, Oracle
		"100.64.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1",
		"240.0.0.1", "255.255.255.255", "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
		"::ffff:169.254.169.254", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1", "fd00:ec2::254", // AWS over IPv6
		"ff02::1", "100::1", "2001::1", "2001:db8::1", "64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254",
		"64:ff9b:1::1", "2002:7f00:1::1", "2002:a9fe:a9fe::", "::ffff:0:7f00:1",
		"::ffff:0:a9fe:a9fe", "4000::1", "200::1",
	} {
		if isPublic(netip.MustParseAddr(a)) {
			t.Errorf("%s is permitted", a)
		}
	}
	if isPublic(netip.Addr{}) {
		t.Error("no address is permitted")
	}
}

func TestAllowedNetworks(t *testing.T) {
	t.Parallel()
	check := control([]netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/32")})
	for address, ok := range map[string]bool{
		"10.1.2.3:443": true, "[::ffff:10.1.2.3]:443": true, "[fd00:1::5%eth0]:443": true, "8.8.8.8:443": true,
		"10.2.0.1:443": false, "[fd00:2::5]:443": false, "127.0.0.1:80": false, "[::1]:80": false,
		"metadata.internal:80": false, "": false,
	} {
		if err := check("tcp", address, nil); (err == nil) != ok || err != nil && !errors.Is(err, errAddress) {
			t.Errorf("%s: %v", address, err)
		}
	}
}
