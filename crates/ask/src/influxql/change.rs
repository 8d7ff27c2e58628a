//! Removals: `DELETE`, `DROP SERIES`, `DROP MEASUREMENT`; and the answers to statements about
//! retention policies.
//!
//! Invariants: a series is changed only if the client may write to it; a series that the client may
//! read but not write to refuses the whole statement before anything is changed; hidden series are
//! not reported. Only tags and time decide what a condition removes. Concurrency: series that are
//! created while a statement runs are not changed.

use super::condition::{Compiler, Condition};
use super::predicate::Predicate;
use super::{Answer, Evaluator, invalid};
use crate::databases::Names;
use crate::error::{Error, QueryErrorKind, ok_if_found};
use headwater::{ClosedRange, Database, StreamName};
use headwater_wire::influxql::{MeasurementName, Policy, Removal, Source};

/// Maximum number of names that are checked and dropped together.
const NAMES_AT_ONCE: usize = 4_096;

/// Effect of a statement on series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The rows of a range are deleted.
    Cleared(ClosedRange),
    /// The series are dropped.
    Dropped,
}

impl Evaluator<'_> {
    /// `DELETE`: deletes rows; series that cannot have rows left are dropped.
    pub(super) fn delete(&self, removal: &Removal) -> Result<Answer, Error> {
        let condition = Condition::new(removal.condition.as_ref(), self.now, None)?;
        condition.must_be_one_range("DELETE", "write one DELETE for each range")?;
        let fate = match condition.has_start || condition.has_end {
            true => Fate::Cleared(condition.range),
            false => Fate::Dropped,
        };
        if condition.range.is_empty() {
            return Ok(Answer::default());
        }
        self.remove(&removal.sources, &condition, fate)
    }

    /// `DROP SERIES`.
    pub(super) fn drop_series(&self, removal: &Removal) -> Result<Answer, Error> {
        let condition = Condition::new(removal.condition.as_ref(), self.now, None)?;
        if condition.has_start || condition.has_end || condition.has_times_in_rest {
            return Err(invalid(
                "DROP SERIES doesn't support time in WHERE clause: use DELETE to remove rows",
            ));
        }
        self.remove(&removal.sources, &condition, Fate::Dropped)
    }

    /// `DROP MEASUREMENT`: the table, if the client may manage it, or all its series.
    pub(super) fn drop_measurement(&self, name: &str) -> Result<Answer, Error> {
        let space = self.space(self.database)?;
        let db = self.database_to_change()?;
        let table = Names::table(&space, name);
        if self.access.all() || self.access.manages(&table) {
            ok_if_found(db.drop_table(&table))?;
            return Ok(Answer::default());
        }
        let source = Source {
            database: None,
            policy: None,
            name: MeasurementName::Exact(name.to_owned()),
        };
        let condition = Condition::new(None, self.now, None)?;
        self.remove(&[source], &condition, Fate::Dropped)
    }

    /// `DROP DATABASE`: drops its tables and its name. A database that does not exist counts as
    /// dropped, as in InfluxDB.
    pub(super) fn drop_database(&self, name: &str) -> Result<Answer, Error> {
        let Some(databases) = self.databases.filter(|_| self.names.is_apart()) else {
            self.space(Some(name))?;
            return Err(Error::new(
                QueryErrorKind::Unsupported,
                "the only database of this server cannot be dropped: use DROP MEASUREMENT to remove its data",
            ));
        };
        if self.names.is_new(name) {
            return Ok(Answer::default());
        }
        let Ok(space) = self.space(Some(name)) else {
            return Ok(Answer::default());
        };
        let db = self.database_to_change()?;
        let may_all = self.access.all();
        let (mut doomed, mut is_whole) = (Vec::new(), true);
        let mut tables = self.snapshot.table_names();
        tables.retain(|table| self.names.measurement(&space, table).is_some());
        for table in tables {
            if may_all || self.access.manages(&table) {
                doomed.push(table);
            } else if self.access.reads_some_of(&table) {
                return Err(Error::new(
                    QueryErrorKind::Access,
                    format!("this token may not drop table `{table}`"),
                ));
            } else {
                is_whole = false;
            }
        }
        if !may_all
            && doomed.is_empty()
            && !self
                .access
                .writes_some_with_prefix(&Names::table(&space, ""))
        {
            return Err(Error::new(
                QueryErrorKind::Access,
                "this token may not drop this database: none of its rules allows it; use a token with \
                 such a rule (`headwater token create`)",
            ));
        }
        for table in doomed {
            self.budget.check()?;
            ok_if_found(db.drop_table(&table))?;
        }
        if is_whole {
            databases.change(&mut |names| {
                names.remove(name);
                Ok(())
            })?;
        }
        Ok(Answer::default())
    }

    /// The answer to a statement that creates or changes a retention policy.
    pub(super) fn policy(policy: &Policy) -> Answer {
        let name = &policy.name;
        Answer {
            warning: Some(format!(
                "retention policy \"{name}\" is not supported: the retention of each table is set with ALTER TABLE … SET (retention = …) in SQL or `headwater table`"
            )),
            ..Answer::default()
        }
    }

    fn database_to_change(&self) -> Result<&Database, Error> {
        self.changes.ok_or_else(|| {
            Error::new(
                QueryErrorKind::Unsupported,
                "this front end is read-only: send the statement to a server, or use `headwater delete` and `headwater table`",
            )
        })
    }

    fn remove(
        &self,
        sources: &[Source],
        condition: &Condition,
        fate: Fate,
    ) -> Result<Answer, Error> {
        let db = self.database_to_change()?;
        let mut doomed: Vec<(String, Vec<StreamName>)> = Vec::new();
        for table in self.names_among(self.snapshot.table_names(), sources)? {
            let streams = self.doomed(&table, condition)?;
            if !streams.is_empty() {
                doomed.push((table, streams));
            }
        }
        for (table, streams) in doomed {
            for some in streams.chunks(NAMES_AT_ONCE) {
                self.budget.check()?;
                // A series that is already dropped needs no action.
                match fate {
                    Fate::Cleared(range) => ok_if_found(db.delete_streams(&table, some, range))?,
                    Fate::Dropped => ok_if_found(db.drop_named_streams(&table, some))?,
                };
            }
        }
        Ok(Answer::default())
    }

    /// The series of a table that a condition selects.
    fn doomed(&self, table: &str, condition: &Condition) -> Result<Vec<StreamName>, Error> {
        let fields = self.access.typed_fields(self.snapshot, table)?;
        let mut compiler = Compiler {
            table_fields: &fields.unwrap_or_default(),
            read: Vec::new(),
        };
        let predicate = compiler.all(&condition.rest)?;
        if !compiler.read.is_empty() {
            return Err(invalid(
                "fields not allowed in WHERE clause during deletion",
            ));
        }
        let mut out: Vec<StreamName> = Vec::new();
        let mut last: Option<StreamName> = None;
        loop {
            self.budget.check()?;
            let page = self
                .snapshot
                .streams_after(table, last.as_ref(), NAMES_AT_ONCE);
            let page = ok_if_found(page)?.unwrap_or_default();
            last = page.last().cloned();
            let is_last = page.len() < NAMES_AT_ONCE;
            for stream in page {
                let is_meant = matches!(predicate.on_stream(&stream), Predicate::Constant(true));
                if !is_meant {
                    continue;
                }
                if self.access.writes(table, stream.tags()) {
                    self.budget.take_stream()?;
                    out.push(stream);
                } else if self.access.reads(table, stream.tags()) {
                    return Err(Error::new(
                        QueryErrorKind::Access,
                        format!("this token may not delete from `{stream}`"),
                    ));
                }
            }
            if is_last {
                return Ok(out);
            }
        }
    }
}
