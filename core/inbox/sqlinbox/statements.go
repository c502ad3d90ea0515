package sqlinbox

import (
	"strings"

	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
)

const (
	seenIs      = "handler_id = ? AND tenant_id = ? AND event_id = ?"
	seenColumns = 4 // the number of columns that seenArgs returns

	seenHead = "INSERT INTO {seen} (handler_id, tenant_id, event_id, source, attempts, processed_at) "
	seenRow  = "?, ?, ?, ?, "
	seenDone = seenRow + "1, {now}"
	seenOpen = seenRow + "0, NULL"

	failureIs   = "consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ?"
	failureHead = "INSERT INTO {failure} (consumer, handler, tenant_id, event_id, event_type, event_version, " +
		"aggregate_type, aggregate_id, partition_key, key_seq, source_topic, source_partition, source_offset, " +
		"status, attempts, received_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, {now}, {now})"

	laneHead = "INSERT INTO {inbox_key} AS k (consumer, handler, tenant_id, topic, partition_key, last_seq, " +
		"updated_at) VALUES (?, ?, ?, ?, ?, ?, {now}) "
	laneIs = "consumer = ? AND handler = ? AND tenant_id = ? AND topic = ? AND partition_key = ?"
)

// statements are the statements about the tables.
type statements struct {
	see, take, open, list, handlers                               string // about {seen} and {handler}
	register, others, shared                                      string // about {program}
	openFailure, seeFailure, firstFailure, fail, recover, redrive string // about {failure}
	discard                                                       string // about {failure}
	dead                                                          string // without its end; its parameters are ?

	cleanupKeys      string
	insert           sqlstore.Insert
	cleanup          sqlstore.Cleanup
	cleanupDiscarded sqlstore.Cleanup // about {failure}
	old              string           // for Archive
	lockOld, remove  func(n int) string
	forget           string // about {failure}
	database         database
	desk             deskStatements
}

const (
	listHandler = "INTO {handler} (handler_id, consumer, handler) VALUES (?, ?, ?)"
	listOnce    = "INSERT " + listHandler + " ON CONFLICT (handler_id) DO NOTHING"
)

// variant has the statements that are different on each database.
type variant struct {
	list        string // leaves an existing handler alone, without the right to change it
	cleanupKeys string
	database    func(n sqlstore.Names) database
}

var variants = sqlstore.Each[variant]{Postgres: postgresVariant, MySQL: mysqlVariant, SQLite: sqliteVariant}

// newStatements returns the statements of a configuration.
func newStatements(n sqlstore.Names) *statements {
	v, text, unless := variants.Of(n), n.Statement, unlessSeen(n)
	return &statements{
		see: text("SELECT " + isProcessed + ", attempts FROM {seen} WHERE " + seenIs + "{lock}"),
		take: text("UPDATE {seen} SET attempts = ?, processed_at = {now} WHERE " + seenIs +
			" AND processed_at IS NULL"),
		open: text(seenHead + "VALUES (" + seenOpen + ")" + unless),
		list: text(v.list),
		register: text("INSERT INTO {program} (handler_id, program, topic, seen_at) VALUES (?, ?, ?, {now})" +
			n.Replace("handler_id, program", "topic", "seen_at")),
		others: text("SELECT program, COALESCE(topic,'') FROM {program} WHERE handler_id = ? AND program <> ? AND " +
			"seen_at > {ago} ORDER BY program"),
		shared: text("SELECT h.consumer, h.handler, p.program, COALESCE(p.topic,'') FROM {program} p JOIN {handler} " +
			"h ON h.handler_id = p.handler_id WHERE p.seen_at > {ago} AND EXISTS (SELECT 1 FROM {program} o WHERE " +
			"o.handler_id = p.handler_id AND o.program <> p.program AND o.seen_at > {ago}) ORDER BY h.consumer, " +
			"h.handler, p.program"),
		handlers: text("SELECT handler FROM {handler} WHERE consumer = ?"),

		openFailure:  text(failureHead + n.Unless("consumer, handler, tenant_id, event_id", "attempts = attempts")),
		seeFailure:   text("SELECT status, attempts, {left:updated_at} FROM {failure} WHERE " + failureIs + "{lock}"),
		firstFailure: text("SELECT status, attempts, {left:received_at} FROM {failure} WHERE " + failureIs + "{lock}"),
		fail: text("UPDATE {failure} SET status = ?, attempts = ?, last_error_code = ?, last_error = ?, " +
			"failed_at = {now}, updated_at = {now} WHERE " + failureIs),
		recover: text("DELETE FROM {failure} WHERE " + failureIs),
		redrive: text(failureDecided("redriven")),
		discard: text(failureDecided("discarded")),
		dead:    n.Expand("SELECT " + failureColumns + " FROM {failure} WHERE consumer = ? AND status = 4"),

		cleanupKeys: text(v.cleanupKeys),
		insert:      n.Insert(seenHead, seenDone, unless),
		cleanup: n.Cleanup("{seen}", "handler_id = ? AND processed_at < {ago} ORDER BY processed_at",
			"tenant_id, event_id", seenIs),
		cleanupDiscarded: n.Cleanup("{failure}", failureOld, "handler, tenant_id, event_id", failureIs),
		old: text("SELECT s.tenant_id, s.event_id, COALESCE(s.source,''), s.attempts, {us:s.processed_at}, CASE WHEN " +
			"f.status IS NULL THEN 0 ELSE 1 END, COALESCE(f.last_error,'') FROM {seen} s LEFT JOIN {failure} f ON " +
			"f.consumer = ? AND f.handler = ? AND f.tenant_id = s.tenant_id AND f.event_id = s.event_id AND f.status " +
			"= 0 AND f.last_error_code = 'discarded' WHERE s.handler_id = ? AND s.processed_at < {ago} ORDER BY " +
			"s.processed_at LIMIT ?"),
		lockOld: func(rows int) string {
			return text("SELECT tenant_id, event_id FROM {seen} WHERE " +
				sqlstore.AnyOf(seenIs+" AND {us:processed_at} = ?", rows) + "{skip}")
		},
		remove: func(rows int) string {
			return text("DELETE FROM {seen} WHERE " + sqlstore.AnyOf(seenIs+" AND {us:processed_at} = ?", rows))
		},
		forget: text("DELETE FROM {failure} WHERE " + failureIs +
			" AND status = 0 AND last_error_code = 'discarded'"),
		database: v.database(n),
		desk:     newDeskStatements(n),
	}
}

// isProcessed is 1 for a row of {seen} whose event was processed, else 0.
const isProcessed = "CASE WHEN processed_at IS NULL THEN 0 ELSE 1 END"

// failureDecided returns the UPDATE of a dead event that a person decides about. The row gets the
// code, fresh attempts and a new age.
func failureDecided(code string) string {
	return "UPDATE {failure} SET status = 0, attempts = 0, last_error_code = '" + code + "', " +
		"last_error = ?, received_at = {now}, updated_at = {now} WHERE " + failureIs + " AND status = 4"
}

// failureOld selects the rows of discarded events whose time is over. Discard sets received_at.
const failureOld = "consumer = ? AND status = 0 AND last_error_code = 'discarded' AND received_at < {ago} " +
	"ORDER BY received_at"

// insertRows returns the INSERT of n rows.
func insertRows(n int) string {
	return seenHead + "VALUES " + strings.Repeat("("+seenDone+"), ", n-1) + "(" + seenDone + ")"
}
