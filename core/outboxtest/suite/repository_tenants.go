package suite

import (
	"fmt"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// tenantCases are claims that leave the rows of paused tenants.
func tenantCases() []repositoryCase {
	return []repositoryCase{
		{"rows of paused tenants are left, in keys or not", tenantsLeft},
		{"a tenant is a value, whatever it contains", tenantsHostile},
		{"rows that are left use up no limit", tenantsLimits},
		{"nothing is due of a paused tenant", tenantsNextDue},
		{"as many tenants as can be paused", tenantsMany},
	}
}

// ofTenant returns a cold row of a tenant.
func ofTenant(tenant, topic, key string) core.NewRow {
	e := newRow(topic, key).Event
	e.TenantID = tenant
	return rowOf(e)
}

func tenantsLeft(f *fixture) {
	var rows []core.NewRow
	for _, tenant := range []string{"acme", "", "other"} {
		for _, key := range []string{"", "k"} {
			rows = append(rows, ofTenant(tenant, "a", key), ofTenant(tenant, "b", key))
		}
	}
	f.commit(rows...)
	lane := core.NewKeyID("acme", "a", "k")
	req := request(nodeA)
	req.ExceptTenants = []string{"acme", "nobody"}
	f.must(len(f.lane(req, lane)) == 0, "a key of a paused tenant was claimed")
	req.Only = []string{"a", "b"}
	f.must(len(f.lane(req, lane)) == 0, "a key of a paused tenant was claimed")
	req.Only, req.Except = nil, []string{"b"}
	acme, rest := rows[:4], rows[4:]
	f.wantSet(f.claimAny(req), rest[0], rest[2], rest[4], rest[6])
	req.Except = nil
	f.wantSet(f.claimAny(req), rest[1], rest[3], rest[5], rest[7])
	f.must(len(f.claimAny(req)) == 0, "rows of a paused tenant were claimed")
	req.ExceptTenants = nil
	f.wantIDs(f.lane(req, lane), acme[2])
	f.wantSet(f.claimAny(req), acme[0], acme[1], acme[3])
}

// The tenants of a pair look alike to a comparison that is not exact.
func tenantsHostile(f *fixture) {
	var rows [2][]core.NewRow
	var tenants [2][]string
	for _, pair := range [][2]string{
		{"acme", "ACME"},
		{"blank", "blank "},
		{"a,b", "a"},
		{`{x}`, "x"},
		{"it's", "it''s"},
		{`q"q`, `q\"q`},
		{`b\s`, `b\\s`},
		{"é", "e\u0301"},
		{"NULL", ""},
		{"p%", "p1"},
		{"世界", "世"},
		{"' OR '1'='1", "1"},
	} {
		for i, tenant := range pair {
			rows[i] = append(rows[i], ofTenant(tenant, "topic", ""), ofTenant(tenant, "topic", "k"))
			if tenant != "" {
				tenants[i] = append(tenants[i], tenant)
			}
		}
	}
	f.commit(append(slices.Clone(rows[0]), rows[1]...)...)
	req := request(nodeA)
	req.ExceptTenants = tenants[0]
	f.wantSet(f.claimAny(req), rows[1]...)
	req.ExceptTenants = tenants[1]
	f.wantSet(f.claimAny(req), rows[0]...)
}

func tenantsLimits(f *fixture) {
	var left, rest []core.NewRow
	for i := range 12 {
		left = append(left, ofTenant("acme", "topic", ""), ofTenant("acme", "topic", fmt.Sprint("k", i)))
	}
	for i := range 2 {
		rest = append(rest, ofTenant("other", "topic", ""), ofTenant("other", "topic", fmt.Sprint("k", i)))
	}
	f.commit(left...)
	f.commit(rest...)
	req := request(nodeA)
	req.Limit, req.ExceptTenants = 2, []string{"acme"}
	f.wantSet(f.claimAny(req), rest...)
	req.Limit, req.ExceptTenants = 1000, nil
	f.wantSet(f.claimAny(req), left...)
}

func tenantsNextDue(f *fixture) {
	f.commit(ofTenant("acme", "topic", ""), ofTenant("acme", "topic", "k"))
	req := request(nodeA)
	f.dueIn(req, 0, 0)
	req.ExceptTenants = []string{"acme"}
	f.notDue(req)
	for _, key := range []string{"", "k"} {
		row := ofTenant("other", "topic", key)
		row.Hot = true
		f.commitLeased(10*time.Minute, row)
		f.dueIn(req, 9*time.Minute, 10*time.Minute)
		f.done(false, row.ID)
	}
	f.notDue(req)
}

func tenantsMany(f *fixture) {
	var rows []core.NewRow
	for i := range 3 {
		topic := fmt.Sprint("topic", i)
		rows = append(rows, ofTenant("other", topic, ""), ofTenant("other", topic, "k"), newRow(topic, ""))
		f.commit(ofTenant("tenant 999", topic, ""), ofTenant("tenant 0", topic, "k"))
	}
	f.commit(rows...)
	req := request(nodeA)
	for i := range 1000 {
		req.ExceptTenants = append(req.ExceptTenants, fmt.Sprint("tenant ", i))
	}
	f.wantSet(f.claimAny(req), rows...)
	f.must(len(f.lane(req, core.NewKeyID("tenant 0", "topic0", "k"))) == 0, "a key of a paused tenant was claimed")
	req.Only = []string{"topic0", "topic1", "topic2"}
	_, ok, err := f.Repository.NextDue(f.Context(), req)
	f.check(err)
	f.must(ok, "the leases of the claimed rows end some time")
}
