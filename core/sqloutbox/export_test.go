package sqloutbox

import "maps"

// Texts returns every statement of a configuration by its name, for the golden files.
func Texts(cfg Config, mariadb bool) (map[string]string, error) {
	n, err := cfg.names()
	if err != nil {
		return nil, err
	}
	r := &Repository{dialect: n.dialect, names: n, sql: newStatements(n)}
	texts := maps.Clone(r.sql.fixed)
	if n.dialect == "postgres" {
		texts["insert 2 rows"] = r.sql.build("insert", 2, 0, postgresInsert)
		texts["insert 3 rows, 2 lanes"] = r.sql.build("insert", 3, 2, postgresInsert)
		texts["planner"] = postgresPlanner
		return texts, nil
	}
	m := b2i(mariadb)
	for i, name := range []string{"1", "2"} {
		texts["insert "+name] = r.sql.build("insert", i+1, m, r.rowInsert)
		texts["key "+name] = r.sql.build("key", i+1, m, r.keyUpsert)
		texts["key_read "+name] = r.sql.build("key_read", i+1, 0, keyRead)
	}
	texts["topic_rows of 2"] = r.union("topic_rows", 2)
	return texts, nil
}

// TextArray is how lists travel to PostgreSQL, Clean how diagnostics are made storable.
var (
	TextArray = textArray
	Clean     = clean
)
