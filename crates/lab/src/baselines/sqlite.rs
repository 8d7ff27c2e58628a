//! SQLite, twice: tuned for this work, and in the configuration of the GOLSM paper's comparison.

use super::{Points, Store, Survival, Window};
use crate::harness::Failure;
use rusqlite::{Connection, Rows};
use std::fmt::Write;
use std::path::Path;

/// Tuned: a table that is its own primary key, a write-ahead log, prepared statements, one
/// transaction per call.
pub(crate) struct Sqlite {
    connection: Connection,
}

impl Sqlite {
    pub(crate) fn open(dir: &Path, survives: Survival) -> Result<Sqlite, Failure> {
        std::fs::create_dir_all(dir)?;
        let connection = Connection::open(dir.join("points.sqlite"))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        let synchronous = match survives {
            Survival::PowerCut => "FULL",
            Survival::Process => "OFF",
        };
        connection.pragma_update(None, "synchronous", synchronous)?;
        connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS points (tag INTEGER, time INTEGER, value REAL, PRIMARY KEY (tag, time)) WITHOUT ROWID",
        )?;
        connection.pragma_update(None, "cache_size", -65_536)?;
        Ok(Sqlite { connection })
    }
}

/// Bucket number, count, least, greatest, mean.
pub(crate) type Overview = Vec<(i64, i64, f64, f64, f64)>;

impl Sqlite {
    /// The first tag in buckets of 2^level seconds.
    pub(crate) fn overview(&self, first: i64, last: i64, level: u32) -> Result<Overview, Failure> {
        let mut select = self.connection.prepare_cached(
            "SELECT time >> ?, count(*), min(value), max(value), avg(value) FROM points
             WHERE tag = 0 AND time BETWEEN ? AND ? GROUP BY 1 ORDER BY 1",
        )?;
        let rows = select.query_map((level, first, last), |row| {
            Ok((
                row.get(0)?,
                row.get(1)?,
                row.get(2)?,
                row.get(3)?,
                row.get(4)?,
            ))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

impl Store for Sqlite {
    fn write(&mut self, window: &Window<'_>) -> Result<(), Failure> {
        let transaction = self.connection.transaction()?;
        {
            let mut insert =
                transaction.prepare_cached("INSERT OR REPLACE INTO points VALUES (?, ?, ?)")?;
            for (tag, second, value) in window.points() {
                insert.execute((tag as i64, second, value))?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn read(
        &mut self,
        tags: &[usize],
        first: i64,
        last: i64,
        out: &mut Points,
    ) -> Result<(), Failure> {
        let mut select = self.connection.prepare_cached(
            "SELECT time, value FROM points WHERE tag = ? AND time BETWEEN ? AND ? ORDER BY time",
        )?;
        for tag in tags {
            append(&mut select.query((*tag as i64, first, last))?, out)?;
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<(), Failure> {
        checkpoint(&self.connection)
    }

    fn syncs(&self) -> Result<Option<u64>, Failure> {
        Ok(None)
    }
}

/// Appends rows of a time and a value.
fn append(rows: &mut Rows<'_>, out: &mut Points) -> Result<(), Failure> {
    while let Some(row) = rows.next()? {
        out.push(row.get(0)?, row.get(1)?);
    }
    Ok(())
}

fn checkpoint(connection: &Connection) -> Result<(), Failure> {
    let busy: i64 = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |r| r.get(0))?;
    if busy == 0 {
        Ok(())
    } else {
        Err("a checkpoint was blocked".into())
    }
}

/// As in the paper: a row id table with an index on each column, SQL made as text, the default
/// journal.
pub(crate) struct PlainSqlite {
    connection: Connection,
}

impl PlainSqlite {
    pub(crate) fn open(dir: &Path, survives: Survival) -> Result<PlainSqlite, Failure> {
        std::fs::create_dir_all(dir)?;
        let connection = Connection::open(dir.join("plain.sqlite"))?;
        if survives == Survival::Process {
            connection.pragma_update(None, "synchronous", "OFF")?;
        }
        connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS measurement (tag TEXT, time INTEGER, value REAL);
             CREATE INDEX IF NOT EXISTS by_tag ON measurement (tag);
             CREATE INDEX IF NOT EXISTS by_time ON measurement (time)",
        )?;
        Ok(PlainSqlite { connection })
    }
}

impl Store for PlainSqlite {
    fn write(&mut self, window: &Window<'_>) -> Result<(), Failure> {
        let transaction = self.connection.transaction()?;
        let mut text = String::new();
        for (tag, second, value) in window.points() {
            text.clear();
            write!(
                text,
                "INSERT INTO measurement VALUES ('tag{tag}', {second}, {value:?})"
            )?;
            transaction.execute(&text, [])?;
        }
        Ok(transaction.commit()?)
    }

    fn read(
        &mut self,
        tags: &[usize],
        first: i64,
        last: i64,
        out: &mut Points,
    ) -> Result<(), Failure> {
        for tag in tags {
            let text = format!(
                "SELECT time, value FROM measurement WHERE tag = 'tag{tag}' AND time >= {first} AND time <= {last} ORDER BY time"
            );
            let mut select = self.connection.prepare(&text)?;
            append(&mut select.query([])?, out)?;
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn syncs(&self) -> Result<Option<u64>, Failure> {
        Ok(None)
    }
}
