package core

// Migration is one versioned change of a schema, as SQL that can be copied into goose,
// golang-migrate, dbmate, Atlas or Flyway. Packages of tables return theirs: sqloutbox, sqlinbox,
// sqlonce and sqlcommand.
type Migration struct {
	Version int
	Name    string
	Up      string // statements; each ends with a semicolon at the end of a line
	Down    string // undoes Up; version 1's Down removes the tables with all data
}
