//go:build rivals

package bench

import (
	"database/sql"
	"path/filepath"

	_ "github.com/mattn/go-sqlite3"
	_ "modernc.org/sqlite"
)

func init() {
	contestants = append(contestants,
		contestant{"sqlite-modernc", func(dir string) (store, error) { return openSQLite("sqlite", dir) }, "."},
		contestant{"sqlite-mattn", func(dir string) (store, error) { return openSQLite("sqlite3", dir) }, "."},
	)
}

// sqliteStore is SQLite tuned for this work: one table whose rows lie in the order of tag and time, a write-ahead log that is synced by
// every commit, prepared statements, one transaction a call, one connection.
type sqliteStore struct {
	db     *sql.DB
	insert *sql.Stmt
	query  *sql.Stmt
}

func openSQLite(driver, dir string) (store, error) {
	db, err := sql.Open(driver, filepath.Join(dir, "sqlite.db"))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	for _, text := range []string{
		"PRAGMA journal_mode = WAL",
		"PRAGMA synchronous = FULL",
		"PRAGMA cache_size = -65536",
		"PRAGMA mmap_size = 268435456",
		"CREATE TABLE IF NOT EXISTS point (tag INTEGER, ts INTEGER, value REAL, PRIMARY KEY (tag, ts)) WITHOUT ROWID",
	} {
		if _, err := db.Exec(text); err != nil {
			return nil, err
		}
	}
	s := &sqliteStore{db: db}
	if s.insert, err = db.Prepare("INSERT OR REPLACE INTO point VALUES (?, ?, ?)"); err != nil {
		return nil, err
	}
	s.query, err = db.Prepare("SELECT ts, value FROM point WHERE tag = ? AND ts BETWEEN ? AND ? ORDER BY ts")
	return s, err
}

func (s *sqliteStore) write(points []series) error {
	tx, err := s.db.Begin()
	if err != nil {
		return err
	}
	insert := tx.Stmt(s.insert)
	for i := range points {
		p := &points[i]
		for j, at := range p.times {
			if _, err := insert.Exec(p.tag, at, p.values[j]); err != nil {
				_ = tx.Rollback() // the error that led here says more
				return err
			}
		}
	}
	return tx.Commit()
}

func (s *sqliteStore) read(into []series, from, to int64) error {
	for i := range into {
		p := &into[i]
		p.times, p.values = p.times[:0], p.values[:0]
		rows, err := s.query.Query(p.tag, from, to)
		if err != nil {
			return err
		}
		for rows.Next() {
			var at int64
			var value float64
			if err := rows.Scan(&at, &value); err != nil {
				_ = rows.Close() // the error that led here says more
				return err
			}
			p.times = append(p.times, at)
			p.values = append(p.values, value)
		}
		if err := rows.Err(); err != nil {
			return err
		}
	}
	return nil
}

func (s *sqliteStore) close() error { return s.db.Close() }
