package walrelay

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

const (
	connectTimeout = 10 * time.Second
	closeTimeout   = 2 * time.Second
	leastVersion   = 150000
)

// gathererOf is where a connection has its gatherer.
const gathererOf = "walrelay.gatherer"

// address is where the log is read.
func (r *Relay) address(ctx context.Context) (*pgx.ConnConfig, error) {
	if r.cfg.Replication != nil {
		return r.cfg.Replication, nil
	}
	pool := r.cfg.Pool.Config()
	if pool.BeforeConnect == nil {
		return pool.ConnConfig, nil
	}
	return pool.ConnConfig, pool.BeforeConnect(ctx, pool.ConnConfig) // a password that changes, for example
}

// dial opens a replication connection, and returns the identity of the server and its timeline.
func (r *Relay) dial(ctx context.Context) (conn *pgconn.PgConn, id pglogrepl.IdentifySystemResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	cfg, err := r.address(ctx)
	if err != nil {
		return nil, id, err
	}
	own := cfg.Config.Copy()
	own.RuntimeParams["replication"] = "database"
	own.AfterConnect = nil // it may send what a walsender does not know
	build := own.BuildFrontend
	var gather *gatherer
	own.BuildFrontend = func(from io.Reader, to io.Writer) *pgproto3.Frontend {
		gather = newGatherer(from)
		return build(gather, to)
	}
	if conn, err = pgconn.ConnectConfig(ctx, own); err != nil {
		return nil, id, replicationError(err)
	}
	conn.CustomData()[gathererOf] = gather
	// A slot is made when all transactions have ended that run now, however long that takes.
	_, err = conn.Exec(ctx, fmt.Sprintf(noTimeouts, false)).ReadAll()
	if err == nil {
		id, err = pglogrepl.IdentifySystem(ctx, conn)
	}
	if err != nil {
		_ = conn.Close(ctx)
		return nil, id, replicationError(err)
	}
	return conn, id, nil
}

// replicationError explains why a connection cannot read the log.
func replicationError(err error) error {
	switch sqlState(err) {
	case stateNoRight:
		return fmt.Errorf("%w: the role has no right to read the log: ALTER ROLE ... REPLICATION: %w", errServer, err)
	case "08P01":
		return fmt.Errorf("%w: the address leads to a pooler, which has no access to the log: set Config.Replication "+
			"to PostgreSQL itself: %w", errServer, err)
	case stateNoLogin:
		return fmt.Errorf("%w: pg_hba.conf lets the role in only for other uses: %w", errServer, err)
	}
	return err
}

// startReplication makes the server send the log of the slot from start on, or from where the slot
// is if that is later. A walsender has the slot from then on.
func (r *Relay) startReplication(ctx context.Context, conn *pgconn.PgConn, start pglogrepl.LSN) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	publication := pgx.Identifier{r.cfg.Publication}.Sanitize()
	return pglogrepl.StartReplication(ctx, conn, `"`+r.cfg.Slot+`"`, start, pglogrepl.StartReplicationOptions{
		Mode: pglogrepl.LogicalReplication,
		PluginArgs: []string{
			"proto_version '1'", "publication_names '" + strings.ReplaceAll(publication, "'", "''") + "'",
			"binary 'true'",
		},
	})
}

// createSlot makes the slot. An exported snapshot belongs to the position at which the slot begins,
// and lives until the connection is used again.
func (r *Relay) createSlot(ctx context.Context, conn *pgconn.PgConn, export string,
) (start pglogrepl.LSN, snapshot string, err error) {
	options := "SNAPSHOT '" + export + "'"
	if r.cfg.Failover {
		options += ", FAILOVER"
	}
	made, err := pglogrepl.ParseCreateReplicationSlot(conn.Exec(ctx, fmt.Sprintf(
		`CREATE_REPLICATION_SLOT "%s" LOGICAL pgoutput (%s)`, r.cfg.Slot, options)))
	if err != nil {
		switch sqlState(err) {
		case stateNotUsable, "53400":
			err = fmt.Errorf("%w: cannot make the slot: %w", errServer, err)
		case stateUnknownOption:
			err = fmt.Errorf("%w: Config.Failover needs PostgreSQL 17: %w", errServer, err)
		}
		return 0, "", err
	}
	start, err = pglogrepl.ParseLSN(made.ConsistentPoint)
	return start, made.SnapshotName, err
}

// checkServer looks whether the server can be used at all.
func (r *Relay) checkServer(ctx context.Context) error {
	var version int
	var level string
	if _, err := r.db.row(ctx, "SELECT current_setting('server_version_num')::integer, current_setting('wal_level')",
		nil, &version, &level); err != nil {
		return err
	}
	if version < leastVersion {
		return fmt.Errorf("%w: PostgreSQL %d is older than 15", errServer, version/10000)
	}
	if level != "logical" {
		return fmt.Errorf("%w: wal_level is %s: set wal_level = logical and restart it", errServer, level)
	}
	if r.cfg.Failover && version < 170000 {
		return fmt.Errorf("%w: Config.Failover needs PostgreSQL 17 or newer, and this is %d", errServer, version/10000)
	}
	return nil
}

// checkSlot refuses a slot that is not ours.
func (r *Relay) checkSlot(ctx context.Context, s *slotState) error {
	var name string
	if _, err := r.db.row(ctx, "SELECT current_database()", nil, &name); err != nil {
		return err
	}
	switch {
	case s.physical:
		return fmt.Errorf("%w: slot %s is a physical one", ErrSlotTaken, r.cfg.Slot)
	case s.database != name:
		return fmt.Errorf("%w: slot %s is of database %s: slots have one name for the whole server, so give "+
			"Config.Slot another one", ErrSlotTaken, r.cfg.Slot, s.database)
	case s.plugin != "pgoutput":
		return fmt.Errorf("%w: slot %s has the plugin %s, not pgoutput", ErrSlotTaken, r.cfg.Slot, s.plugin)
	}
	return nil
}

// closeConn ends a connection, and waits until the server has noticed: the slot is free then.
func closeConn(conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if !conn.IsClosed() {
		deadline, _ := ctx.Deadline()
		_ = conn.Conn().SetDeadline(deadline)
		conn.Frontend().Send(&pgproto3.Terminate{})
		if conn.Frontend().Flush() == nil {
			_, _ = io.Copy(io.Discard, conn.Conn())
		}
	}
	_ = conn.Close(ctx)
}
