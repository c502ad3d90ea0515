package httpbridge

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// errAddress: the endpoint's host has an address in a private or special network. Its class is
// Unavailable. If the endpoint is yours, add its network to Config.AllowAddresses. If somebody else
// chose the URL, it may be an attack on your network.
var errAddress = errors.New("httpbridge: connections to this address are not permitted")

// special are networks that are not on the public internet, in addition to those in package netip.
var special = func() (networks []netip.Prefix) {
	for _, s := range []string{
		"0.0.0.0/8", "100.64.0.0/10", // this host; addresses of providers
		"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
		"240.0.0.0/4",      // with the broadcast address
		"168.63.129.16/32", // metadata of Azure, on a public address
		"::/96",            // IPv4 addresses in an old form
		"64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16", "fec0::/10",
	} {
		networks = append(networks, netip.MustParsePrefix(s))
	}
	return networks
}()

// unicast is the only part of IPv6 in which addresses have been assigned. Other prefixes are
// reserved, and hosts have used parts of them to wrap IPv4 addresses (::ffff:0:0:0/96).
var unicast = netip.MustParsePrefix("2000::/3")

// wraps are networks whose addresses contain an IPv4 address, at the given byte: NAT64 and 6to4.
var wraps = map[netip.Prefix]int{
	netip.MustParsePrefix("64:ff9b::/96"): 12,
	netip.MustParsePrefix("2002::/16"):    2,
}

// isPublic reports whether an address is on the public internet.
func isPublic(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if !a.IsValid() || !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLinkLocalUnicast() || a.IsLoopback() {
		return false
	}
	if slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return false
	}
	for p, at := range wraps {
		if p.Contains(a) {
			return isPublic(netip.AddrFrom4([4]byte(a.AsSlice()[at : at+4])))
		}
	}
	return a.Is4() || unicast.Contains(a)
}

// control checks the address of a connection before it is opened. DNS has answered by then, so a
// name that changes its address between two answers does not get past it.
func control(allowed []netip.Prefix) func(network, address string, _ syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		where, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("%w: %s", errAddress, address)
		}
		a := where.Addr().Unmap().WithZone("")
		if isPublic(a) || slices.ContainsFunc(allowed, func(p netip.Prefix) bool { return p.Contains(a) }) {
			return nil
		}
		return fmt.Errorf("%w: %s is in a private or special network: see Config.AllowAddresses", errAddress, a)
	}
}
