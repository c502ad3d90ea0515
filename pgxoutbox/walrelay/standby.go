package walrelay

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Standby is a host of an address that is a standby, or does not answer.
type Standby struct {
	// Host is the host and the port.
	Host string
	// Unready is why a reader of the slot cannot go on at this host after a failover. It is empty if
	// the reader can.
	Unready string
}

// Standbys asks each other host of an address of several hosts whether a failover slot is ready
// there. Only the standby knows that: the primary does not. A host that is no standby is left out.
// Standbys opens one connection to each host, and takes at most some seconds for each.
func Standbys(ctx context.Context, address *pgx.ConnConfig, slot string) (all []Standby) {
	for _, host := range hosts(address) {
		s := Standby{Host: net.JoinHostPort(host.Host, strconv.FormatUint(uint64(host.Port), 10))}
		standby, unready, err := askStandby(ctx, host, slot)
		if err != nil {
			standby, unready = true, "it cannot be asked: "+lastLine(err.Error())
		}
		if s.Unready = unready; standby {
			all = append(all, s)
		}
	}
	return all
}

// lastLine has the reason of an error of pgx, which names every way to connect before.
func lastLine(text string) string {
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}

// hosts returns an address for each host, if there are several.
func hosts(address *pgx.ConnConfig) (all []*pgx.ConnConfig) {
	first := pgconn.FallbackConfig{Host: address.Host, Port: address.Port, TLSConfig: address.TLSConfig}
	for _, way := range append([]*pgconn.FallbackConfig{&first}, address.Fallbacks...) {
		same := slices.IndexFunc(all, func(c *pgx.ConnConfig) bool { return c.Host == way.Host && c.Port == way.Port })
		if same >= 0 { // for example without TLS
			all[same].Fallbacks = append(all[same].Fallbacks, way)
			continue
		}
		c := address.Copy()
		c.Host, c.Port, c.TLSConfig, c.Fallbacks = way.Host, way.Port, way.TLSConfig, nil
		c.ValidateConnect, c.AfterConnect = nil, nil // target_session_attrs wants the primary
		c.Tracer, c.ConnectTimeout = nil, askTimeout
		c.DefaultQueryExecMode = pgx.QueryExecModeExec // a host may be a pooler
		all = append(all, c)
	}
	if len(all) == 1 {
		return nil
	}
	return all
}

const askTimeout = 5 * time.Second

// askStandby asks a host. The names of the settings and columns are those of PostgreSQL 17.
func askStandby(ctx context.Context, host *pgx.ConnConfig, slot string) (standby bool, unready string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*askTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, host)
	if err != nil {
		return false, "", err
	}
	defer func() { _ = conn.Close(ctx) }()
	err = conn.QueryRow(ctx, `SELECT pg_is_in_recovery(), CASE
  WHEN current_setting('sync_replication_slots', true) IS DISTINCT FROM 'on' THEN 'sync_replication_slots is off'
  WHEN current_setting('hot_standby_feedback') <> 'on' THEN 'hot_standby_feedback is off'
  WHEN s IS NULL THEN 'it has no copy of the slot'
  WHEN s ->> 'synced' = 'false' THEN 'it keeps the slot of the time when it was the primary: run SELECT '
    || 'pg_drop_replication_slot(''' || $1::text || ''') there'
  WHEN s ->> 'invalidation_reason' IS NOT NULL THEN 'its copy of the slot is invalid: '
    || (s ->> 'invalidation_reason')
  WHEN s ->> 'temporary' = 'true' THEN 'its copy of the slot is not complete'
  ELSE '' END
FROM (SELECT (SELECT to_jsonb(r) FROM pg_catalog.pg_replication_slots r WHERE slot_name = $1::text) AS s) r`,
		slot).Scan(&standby, &unready)
	return standby, unready, err
}

// standbysEvery is how often the reader of a failover slot looks at the standbys. A new slot is
// copied within that time.
const standbysEvery = time.Minute

// watchStandbys logs it when a standby is not ready for the slot, and when it is again.
func (s *session) watchStandbys(ctx context.Context) error {
	told := map[string]string{}
	for sleep(ctx, standbysEvery); ctx.Err() == nil; sleep(ctx, standbysEvery) {
		state, err := s.db.slot(ctx, s.cfg.Slot)
		if err != nil || state == nil || !state.failover {
			continue // others tell it
		}
		address, err := s.address(ctx)
		if err != nil {
			continue
		}
		for _, b := range Standbys(ctx, address, s.cfg.Slot) {
			switch {
			case ctx.Err() != nil || told[b.Host] == b.Unready:
				continue
			case b.Unready == "":
				s.log.InfoContext(ctx, "outbox: the standby is ready for the slot", "standby", b.Host)
			default:
				s.log.WarnContext(ctx, "outbox: the slot cannot follow to the standby: after a failover to it the "+
					"slot is made again, and events come twice; see A failover of PostgreSQL in docs/walrelay.md",
					"standby", b.Host, "reason", b.Unready)
			}
			told[b.Host] = b.Unready
		}
	}
	return nil
}
