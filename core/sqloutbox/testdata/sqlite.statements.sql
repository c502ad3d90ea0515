-- admin: seen
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) FROM "outbox_event" e WHERE e.id IN ({ids}) ORDER BY e.id

-- append
INSERT INTO "outbox_event" (id, key_seq, available_at, created_at, failures,
	  event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, lane, payload, content_type, headers, occurred_at, replay_of)
SELECT ?, ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), failures, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, ?, payload, content_type, CASE WHEN headers IS NULL OR json_valid(headers) AND json_type(headers) = 'object' THEN json_insert(COALESCE(headers, '{}'), '$.outbox_first_key_seq', CAST(key_seq AS TEXT)) ELSE headers END, occurred_at, replay_of FROM "outbox_event" WHERE id = ?

-- archivable
SELECT e.id, CASE WHEN (e.status = 1 AND e.done_at < (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-? OR e.status = 4 AND e.done_at < (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-?) THEN LENGTH(e.payload) END FROM "outbox_event" e
WHERE e.id > ? ORDER BY e.id LIMIT ?

-- archive_rows
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), e.lane, COALESCE(e.key_seq,0), e.payload, COALESCE(e.content_type,''), e.headers, e.occurred_at, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), e.replay_of, e.created_at, e.done_at FROM "outbox_event" e
WHERE e.id IN ({ids}) AND (e.status = 1 AND e.done_at < (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-? OR e.status = 4 AND e.done_at < (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-?) ORDER BY e.id

-- audit
INSERT INTO "outbox_audit" (at, action, actor, reason, row_id, event_id, topic, new_id) VALUES ((CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), ?, ?, ?, ?, ?, ?, ?)

-- audit: count
SELECT a.action, COUNT(*) FROM "outbox_audit" a WHERE a.id > ? AND a.id <= ? GROUP BY a.action

-- audit: list
SELECT a.id, a.at, a.action, a.actor, a.reason, a.row_id, a.event_id, a.topic, a.new_id FROM "outbox_audit" a WHERE a.id < ? ORDER BY a.id DESC LIMIT ?

-- audit: of_row
SELECT a.id, a.at, a.action, a.actor, a.reason, a.row_id, a.event_id, a.topic, a.new_id FROM "outbox_audit" a WHERE a.row_id = ? AND a.id < ? ORDER BY a.id DESC LIMIT ?

-- begin_suspect
UPDATE "outbox_event" SET lost_claims = -ABS(lost_claims) WHERE id IN ({ids})

-- claim
UPDATE "outbox_event" SET lost_claims = ABS(lost_claims) +
  CASE WHEN lease_until <= (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) AND claimed_by <> ? AND lost_claims < 3 THEN 1 ELSE 0 END, claim_no = ?,
  claimed_by = ?, lease_until = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+? WHERE rowid IN ({ids})

-- cleanup
DELETE FROM "outbox_event" WHERE id IN ({ids}) AND (status = 1 AND done_at < (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-? OR status = 4 AND done_at < (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-?)

-- clock
SELECT (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)

-- collect_delete
DELETE FROM "outbox_key" WHERE lane IN ({ids})

-- collect_empty
SELECT k.lane FROM "outbox_key" k WHERE k.lane IN ({ids}) AND NOT EXISTS (SELECT 1 FROM "outbox_event" e WHERE e.lane = k.lane AND e.lane IS NOT NULL AND e.status IN (0,2,3))

-- collect_lock
SELECT k.lane FROM "outbox_key" k WHERE k.lane IN ({ids}) AND k.used_at < (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-? ORDER BY k.lane

-- count_dead
SELECT COUNT(*), COUNT(DISTINCT x.lane) FROM (SELECT e.lane FROM "outbox_event" e WHERE e.status = 3 LIMIT ?) x

-- count_keyed
SELECT COUNT(*), COUNT(x.pending), MIN(CASE WHEN x.pending = 1 THEN x.created_at END)
  FROM (SELECT CASE WHEN e.status <> 3 THEN 1 END AS pending, e.created_at AS created_at
    FROM "outbox_event" e WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL AND e.lane IS NOT NULL ORDER BY e.lane LIMIT ?) x

-- count_ready
SELECT COUNT(*), MIN(x.created_at) FROM (SELECT e.created_at AS created_at FROM "outbox_event"
	  e
  WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic IS NOT NULL ORDER BY e.topic LIMIT ?) x

-- dead
UPDATE "outbox_event" SET failures = substr(COALESCE(failures, '') || (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) || ' ' || (attempts + 1) || ?, -5100), status = 3, attempts = attempts + 1, lease_until = NULL,
  lane = CASE WHEN ? = 1 THEN NULL ELSE lane END, last_error_code = ?, last_error = ?, error_group = ?
WHERE id = ?

-- dead_for_append
SELECT e.id, e.event_id, e.topic, COALESCE(e.tenant_id, ''), COALESCE(e.partition_key, ''),
  e.key_seq, CASE WHEN e.replay_of IS NULL THEN 0 ELSE 1 END FROM "outbox_event" e
WHERE e.id IN ({ids}) AND e.status = 3 AND e.key_seq IS NOT NULL AND (? = 1 OR e.lane IS NULL) ORDER BY e.id

-- dead_heads
SELECT e.id FROM "outbox_event" e WHERE e.id IN ({ids}) AND e.status = 3 AND
  e.lane IS NOT NULL ORDER BY e.id

-- discard
UPDATE "outbox_event" SET status = 4, claim_no = 0, claimed_by = NULL, lease_until = NULL, done_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) WHERE id IN ({ids})

-- discard_dead
UPDATE "outbox_event" SET status = 4, claim_no = 0, claimed_by = NULL, lease_until = NULL, done_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) WHERE id = ? AND status = 3

-- discard_rows
SELECT e.id, e.event_id, e.topic FROM "outbox_event" e WHERE e.id IN ({ids}) AND
	  (e.status = 3 OR e.status IN (0,2)
  AND (? = 1 OR e.lease_until IS NULL OR e.lease_until <= (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000))) ORDER BY e.id

-- done
UPDATE "outbox_event" SET status = 1, done_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), lease_until = NULL, last_error_code = NULL, last_error = NULL WHERE id IN ({ids}) AND status IN (0,2,3)

-- done_delete
DELETE FROM "outbox_event" WHERE id IN ({ids}) AND status IN (0,2,3)

-- done_receipts
UPDATE "outbox_event" SET receipt = CASE id{whens} ELSE receipt END, status = 1,
	  done_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), lease_until = NULL,
  last_error_code = NULL, last_error = NULL WHERE id IN ({ids}) AND status IN (0,2,3)

-- ended
SELECT e.id, CASE WHEN (e.status = 1 AND e.done_at < (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-? OR e.status = 4 AND e.done_at < (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-?) THEN 1 ELSE 0 END FROM "outbox_event" e WHERE e.id > ? ORDER BY e.id LIMIT ?

-- first_created
SELECT e.created_at FROM "outbox_event" e WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic = ? ORDER BY e.available_at, e.id LIMIT 1

-- first_lane
SELECT e.lane FROM "outbox_event" e WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL AND e.lane > ? ORDER BY e.lane, e.key_seq LIMIT 1

-- heads
SELECT e.id, e.topic, COALESCE(e.tenant_id, ''), LENGTH(e.payload),
  CASE WHEN e.status <> 3 AND e.available_at <= (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) AND (e.lease_until IS NULL OR e.lease_until <= (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) OR e.lease_until > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?) THEN 1 ELSE 0 END, CASE WHEN (e.lease_until IS NULL OR e.lease_until <= (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) OR e.lease_until > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?) OR e.lease_until < e.available_at THEN e.available_at ELSE e.lease_until END - (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000),
  CASE WHEN e.status = 3 THEN 1 ELSE 0 END, e.rowid
FROM "outbox_event" e WHERE e.id IN ({ids}) AND e.status IN (0,2,3)

-- held
SELECT e.id, e.claim_no FROM "outbox_event" e
WHERE e.id IN ({ids}) AND e.claimed_by = ? AND e.status IN (0,2) AND e.lease_until IS NOT NULL ORDER BY e.id

-- held_lock
SELECT e.id, e.claim_no FROM "outbox_event" e
WHERE e.id IN ({ids}) AND e.claimed_by = ? AND e.status IN (0,2) AND e.lease_until IS NOT NULL ORDER BY e.id

-- history: add 2
INSERT INTO "outbox_history" AS h (part, slot, topic, published, refused, died)
VALUES ((CAST(strftime('%s','now') AS INTEGER)/300)||':'||?, (CAST(strftime('%s','now') AS INTEGER)/300)*300000000, ?, ?, ?, ?), ((CAST(strftime('%s','now') AS INTEGER)/300)||':'||?, (CAST(strftime('%s','now') AS INTEGER)/300)*300000000, ?, ?, ?, ?)
ON CONFLICT (part) DO UPDATE SET published = h.published + excluded.published, refused = h.refused + excluded.refused, died = h.died + excluded.died

-- history: forget
DELETE FROM "outbox_history" WHERE part < ((CAST(strftime('%s','now') AS INTEGER)/300)-?)||':' AND
  slot < (SELECT x.bound FROM (SELECT slot+3600000000 AS bound FROM "outbox_history" ORDER BY part LIMIT 1) x)

-- history: open
INSERT INTO "outbox_history" (part, slot, topic, published, refused, died)
VALUES ((CAST(strftime('%s','now') AS INTEGER)/300)||':'||'', (CAST(strftime('%s','now') AS INTEGER)/300)*300000000, '', 0, 0, 0) ON CONFLICT (part) DO NOTHING

-- history: read
SELECT slot, SUM(published), SUM(refused), SUM(died), MAX(waiting), MAX(dead), MAX(blocked_keys), MAX(oldest), MAX(more)
FROM "outbox_history" WHERE part >= ((CAST(strftime('%s','now') AS INTEGER)/300)-?)||':' AND (? = '' OR topic = ?)
GROUP BY slot ORDER BY slot LIMIT 2017

-- history: set
UPDATE "outbox_history" SET waiting = ?, dead = ?, blocked_keys = ?, oldest = ?, more = ?
WHERE part = (CAST(strftime('%s','now') AS INTEGER)/300)||':'||''

-- insert 2
INSERT INTO "outbox_event" (id, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, lane, key_seq, payload, content_type, headers, claim_no, claimed_by, lease_until, available_at, occurred_at, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?, ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)), (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?, ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000))

-- insert 2, by the log
INSERT INTO "outbox_event" (id, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, lane, key_seq, payload, content_type, headers, claim_no, claimed_by, lease_until, available_at, occurred_at, created_at, status, done_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?, ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), ?, CASE WHEN ? = 1 THEN (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) END), (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?, ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), ?, CASE WHEN ? = 1 THEN (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) END)

-- insert one
INSERT INTO "outbox_event" (id, event_id, event_type, topic, payload, occurred_at, available_at, created_at) VALUES (?, ?, ?, ?, ?, ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000))

-- insert one, by the log
INSERT INTO "outbox_event" (id, event_id, event_type, topic, payload, occurred_at, status, claimed_by, done_at, available_at, created_at) VALUES (?, ?, ?, ?, ?, ?, 1, 'log', (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000))

-- insert one, everything
INSERT INTO "outbox_event" (id, event_id, event_type, topic, payload, occurred_at, claim_no, claimed_by, lease_until, available_at, lane, key_seq, schema_version, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, content_type, headers, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000))

-- insert one, hot and ordered
INSERT INTO "outbox_event" (id, event_id, event_type, topic, payload, occurred_at, claim_no, claimed_by, lease_until, available_at, lane, key_seq, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), ?, ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000))

-- key 1
INSERT INTO "outbox_key" (lane, last_seq, first_seq, last_id, used_at) VALUES (?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)) ON CONFLICT (lane) DO UPDATE SET prev_id = last_id, last_id = excluded.last_id, last_seq = last_seq + excluded.last_seq - excluded.first_seq + 1, used_at = excluded.used_at RETURNING lane, last_seq, first_seq, prev_id

-- key 2
INSERT INTO "outbox_key" (lane, last_seq, first_seq, last_id, used_at) VALUES (?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)), (?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)) ON CONFLICT (lane) DO UPDATE SET prev_id = last_id, last_id = excluded.last_id, last_seq = last_seq + excluded.last_seq - excluded.first_seq + 1, used_at = excluded.used_at RETURNING lane, last_seq, first_seq, prev_id

-- keys
SELECT k.lane FROM "outbox_key" k WHERE k.lane > ? ORDER BY k.lane LIMIT ?

-- lane_page
SELECT e.lane, COALESCE(e.key_seq, 0), e.id FROM "outbox_event" e
WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL AND e.lane > ? ORDER BY e.lane, e.key_seq LIMIT ?

-- lane_rows
SELECT e.id, e.topic, COALESCE(e.tenant_id, ''), COALESCE(e.key_seq, 0), LENGTH(e.payload),
  CASE WHEN e.status <> 3 AND e.available_at <= (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) AND (e.lease_until IS NULL OR e.lease_until <= (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) OR e.lease_until > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?) THEN 1 ELSE 0 END, CASE WHEN e.status = 3 THEN 1 ELSE 0 END, e.rowid
FROM "outbox_event" e WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL AND e.lane = ? ORDER BY e.key_seq LIMIT ?

-- leave
UPDATE "outbox_event" SET lane = NULL WHERE id IN ({ids})

-- list_dead
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), e.lane, COALESCE(e.key_seq,0), e.payload, COALESCE(e.content_type,''), e.headers, e.occurred_at, e.attempts, ABS(e.lost_claims), COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), e.created_at
FROM "outbox_event" e WHERE e.status = 3 AND e.id > ? AND (? = '' OR e.topic = ?) AND (? = '' OR
  e.event_type = ?)
  AND (? = '' OR e.tenant_id = ?) ORDER BY e.id LIMIT ?

-- lock
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), e.lane, COALESCE(e.key_seq,0), e.payload, COALESCE(e.content_type,''), e.headers, e.occurred_at, e.attempts, ABS(e.lost_claims), e.claim_no, e.replay_of, e.created_at, (SELECT (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)), CASE WHEN e.lease_until <= (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) AND e.claimed_by <> ? AND e.lost_claims < 3 THEN 1 ELSE 0 END, e.rowid
FROM "outbox_event" e WHERE e.rowid IN ({ids}) AND e.status IN (0,2) AND e.available_at <= (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) AND (e.lease_until IS NULL OR e.lease_until <= (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) OR e.lease_until > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?)

-- markable
SELECT e.id FROM "outbox_event" e WHERE e.id IN ({ids}) AND e.status IN (0,2,3) ORDER BY e.id

-- markable_lock
SELECT e.id FROM "outbox_event" e WHERE e.id IN ({ids}) AND e.status IN (0,2,3) ORDER BY e.id

-- next_topic
SELECT e.topic FROM "outbox_event" e WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic > ? ORDER BY e.topic LIMIT 1

-- pause: clock
SELECT (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)

-- pause: pause
INSERT INTO "outbox_pause" (target, paused_at, ends_at, actor, reason)
VALUES (?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), ?, ?, ?)
ON CONFLICT (target) DO UPDATE SET (paused_at, ends_at, actor, reason) = (excluded.paused_at, excluded.ends_at, excluded.actor, excluded.reason)

-- pause: resume
DELETE FROM "outbox_pause" WHERE target = ? AND (ends_at IS NULL OR ends_at > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000))

-- pause: settings
SELECT target, paused_at, ends_at, COALESCE(per_second, 0), COALESCE(in_flight, 0),
  actor, reason, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)
FROM "outbox_pause" WHERE target LIKE 'rate:%' OR (ends_at IS NULL OR ends_at > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000))
ORDER BY CASE WHEN target LIKE 'rate:%' THEN 0 WHEN target LIKE 'tenant:%' THEN 2 ELSE 1 END, target LIMIT 2000

-- rate: remove
DELETE FROM "outbox_pause" WHERE target = ?

-- rate: set
INSERT INTO "outbox_pause" (target, paused_at, per_second, in_flight, actor, reason)
VALUES (?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), ?, ?, ?, ?)
ON CONFLICT (target) DO UPDATE SET (paused_at, per_second, in_flight, actor, reason) = (excluded.paused_at, excluded.per_second, excluded.in_flight, excluded.actor, excluded.reason)

-- redrive
UPDATE "outbox_event" SET status = 2, attempts = 0, lost_claims = 0, claim_no = 0,
  claimed_by = NULL, lease_until = NULL,
  available_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) WHERE id IN ({ids})

-- redrive_rows
SELECT e.id, e.event_id, e.topic FROM "outbox_event" e WHERE e.id IN ({ids}) AND
	  e.status = 3 AND (e.key_seq IS NULL OR e.lane IS NOT NULL AND ? = 0)
ORDER BY e.id

-- relay: beat
INSERT INTO "outbox_relay" (node, host, pid, program, version, all_topics, topics, seen_at, started_at, claimed_at, published_at, state)
VALUES (?, ?, ?, ?, ?, ?, ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-?, ?)
ON CONFLICT (node) DO UPDATE SET (seen_at, started_at, claimed_at, published_at, state) = (excluded.seen_at, excluded.started_at, excluded.claimed_at, excluded.published_at, excluded.state)

-- relay: forget
DELETE FROM "outbox_relay" WHERE seen_at < (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-?

-- relay: pending_topics
SELECT x.topic FROM (SELECT e.topic AS topic, e.status AS status
  FROM "outbox_event" e WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL AND e.lane >= ? AND e.lane <= ?
  ORDER BY e.lane, e.key_seq LIMIT 100) x
WHERE x.status <> 3 LIMIT 1

-- relay: relays
SELECT node, host, pid, program, version, all_topics, topics, started_at, seen_at, claimed_at, published_at, state, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)
FROM "outbox_relay" ORDER BY seen_at DESC, node LIMIT 1000

-- relay: remove
DELETE FROM "outbox_relay" WHERE node = ?

-- release
UPDATE "outbox_event" SET lease_until = NULL WHERE id IN ({ids})

-- renew
UPDATE "outbox_event" SET lease_until = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+? WHERE id IN ({ids})

-- reset_keys
UPDATE "outbox_key" SET last_seq = MAX(last_seq, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)), first_seq = MAX(last_seq, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)), last_id = NULL, prev_id = NULL WHERE lane <> X'00000000000000000000000000000000'

-- retry
UPDATE "outbox_event" SET failures = substr(COALESCE(failures, '') || (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) || ' ' || (attempts + 1) || ?, -5100),
	  status = 2, attempts = attempts + 1, available_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?, lease_until = NULL,
	  last_error_code = ?, last_error = ?, error_group = ?
WHERE id = ?

-- topic_due
SELECT MIN(x.t) FROM (SELECT CASE WHEN (e.lease_until IS NULL OR e.lease_until <= (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) OR e.lease_until > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?) OR e.lease_until < e.available_at THEN e.available_at
  ELSE e.lease_until END - (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) AS t FROM "outbox_event" e WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic = ? ORDER BY
    e.available_at, e.id LIMIT 1000) x

-- topic_due without 2 tenants
SELECT MIN(x.t) FROM (SELECT CASE WHEN (e.lease_until IS NULL OR e.lease_until <= (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) OR e.lease_until > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?) OR e.lease_until < e.available_at THEN e.available_at
  ELSE e.lease_until END - (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) AS t FROM "outbox_event" e WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic = ? AND (e.tenant_id IS NULL OR e.tenant_id NOT IN (?,?)) ORDER BY
    e.available_at, e.id LIMIT 1000) x

-- topic_rows
SELECT e.id, e.topic, LENGTH(e.payload), e.rowid FROM "outbox_event" e WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic = ? AND e.available_at <= (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) AND (e.lease_until IS NULL OR e.lease_until <= (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) OR e.lease_until > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?) ORDER BY e.available_at, e.id LIMIT ?

-- topic_rows of 2
SELECT * FROM (SELECT e.id, e.topic, LENGTH(e.payload), e.rowid FROM "outbox_event" e WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic = ? AND e.available_at <= (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) AND (e.lease_until IS NULL OR e.lease_until <= (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) OR e.lease_until > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?) ORDER BY e.available_at, e.id LIMIT ?) ua UNION ALL SELECT * FROM (SELECT e.id, e.topic, LENGTH(e.payload), e.rowid FROM "outbox_event" e WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic = ? AND e.available_at <= (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) AND (e.lease_until IS NULL OR e.lease_until <= (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) OR e.lease_until > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?) ORDER BY e.available_at, e.id LIMIT ?) ub

-- topic_rows of 2 without 2 tenants
SELECT * FROM (SELECT e.id, e.topic, LENGTH(e.payload), e.rowid FROM "outbox_event" e WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic = ? AND e.available_at <= (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) AND (e.lease_until IS NULL OR e.lease_until <= (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) OR e.lease_until > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?) AND (e.tenant_id IS NULL OR e.tenant_id NOT IN (?,?)) ORDER BY e.available_at, e.id LIMIT ?) ua UNION ALL SELECT * FROM (SELECT e.id, e.topic, LENGTH(e.payload), e.rowid FROM "outbox_event" e WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic = ? AND e.available_at <= (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) AND (e.lease_until IS NULL OR e.lease_until <= (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) OR e.lease_until > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?) AND (e.tenant_id IS NULL OR e.tenant_id NOT IN (?,?)) ORDER BY e.available_at, e.id LIMIT ?) ub

-- try_alone
UPDATE "outbox_event" SET lost_claims = ABS(lost_claims), available_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+? WHERE id IN ({ids})

-- type: backlog
SELECT x.event_type, x.status, COUNT(*) FROM (
  SELECT * FROM (SELECT e.event_type AS event_type, e.status AS status FROM "outbox_event" e
    WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic IS NOT NULL ORDER BY e.topic LIMIT ?) a
  UNION ALL
  SELECT * FROM (SELECT e.event_type AS event_type, e.status AS status FROM "outbox_event" e
    WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL AND e.lane IS NOT NULL ORDER BY e.lane LIMIT ?) b WHERE b.status <> 3
  UNION ALL
  SELECT * FROM (SELECT e.event_type AS event_type, e.status AS status FROM "outbox_event" e
    WHERE e.status = 3 LIMIT ?) c
) x GROUP BY x.event_type, x.status

-- unavailable
UPDATE "outbox_event" SET available_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?, lease_until = NULL, last_error_code = ?, last_error = ?, error_group = ?
WHERE id = ?

-- undo_events
DELETE FROM "outbox_event" WHERE id IN ({ids})

-- undo_first
DELETE FROM "outbox_key" WHERE lane = ?

-- undo_next
UPDATE "outbox_key" SET last_seq = last_seq - ?, last_id = ?, prev_id = NULL WHERE lane = ?

