package sqloutbox

import (
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

// postgresTexts are the statements whose text does not depend on the number of rows. Parameters are
// cast, so that every driver may send them as text; lists travel as the text of an array.
var postgresTexts = map[string]string{
	"claim_unordered":    postgresClaimUnordered,
	"insert_one":         postgresInsertOne,
	"insert_one_ordered": postgresInsertOneOrdered,
	"claim_heads":        postgresClaimHeads,
	"claim_lane":         postgresClaimLane,
	"next_due":           postgresNextDue,
	"done":               postgresDone,
	"done_receipts":      postgresDoneReceipts,
	"done_delete":        postgresDoneDelete,
	"failed":             postgresFailed,
	"unlocked":           postgresUnlocked,
	"markable":           postgresMarkable,
	"held":               postgresHeld,
	"begin_lone":         postgresBeginSuspect,
	"renew":              postgresRenew,
	"release":            postgresRelease,
	"backlog":            postgresBacklog,
	"list_dead":          postgresListDead,
	"redrive":            postgresRedrive,
	"discard":            postgresDiscard,
	"dead_for_append":    postgresDeadForAppend,
	"key_next":           postgresUpsertKey,
	"append":             postgresAppend,
	"discard_dead":       postgresDiscardDead,
	"audit":              postgresAudit,
	"cleanup":            postgresCleanup,
	"collect_lock":       postgresCollectLock,
	"collect_delete":     postgresCollectDelete,
	"reset_keys":         postgresResetKeys,
}

// textArray writes a list as the text of an array.
func textArray(items []string) string {
	size := 2
	for _, s := range items {
		size += len(s) + 3
	}
	var b strings.Builder
	b.Grow(size)
	b.WriteByte('{')
	for i, s := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		for j := 0; j < len(s); j++ {
			if s[j] == '"' || s[j] == '\\' {
				b.WriteByte('\\')
			}
			b.WriteByte(s[j])
		}
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

// textArrayOrNil is NULL for a nil list.
func textArrayOrNil(items []string) any {
	if items == nil {
		return nil
	}
	return textArray(items)
}

// column makes an array of one field of many values.
func column[T any](items []T, field func(*T) string) string {
	texts := make([]string, len(items))
	for i := range items {
		texts[i] = field(&items[i])
	}
	return textArray(texts)
}

func uuidArray(ids []core.RowID) string {
	return column(ids, func(id *core.RowID) string { return id.String() })
}
