//! SQL over the database of a node.

mod batches;
mod error;
mod numbers;
mod request;
pub(super) mod route;
mod rows;

pub(super) use batches::FORMATS;

use super::Opening;
use crate::access::Access;
use crate::app::App;
use crate::component::Component;
use crate::read_scope::{LeftOut, ReadScope};
use crate::settings::Settings;
use crate::start_error::StartError;
use headwater::Database;
use headwater_cluster::EdgeCopies;
use headwater_query::{Query, Slots, Threads};
use std::sync::Arc;

/// SQL over the database of a node.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) query: Query,
    /// Threads that compute statements, so that other work does not wait for them.
    pub(crate) threads: Arc<Threads>,
    /// Slots of statements that may run at once.
    pub(crate) slots: Arc<Slots>,
}

impl Sql {
    pub(super) fn open(opening: &Opening<'_>) -> Result<Sql, StartError> {
        let settings = opening.settings;
        let limits = limits(settings);
        // At least one thread for each statement: a long computation must not delay other
        // statements.
        let threads = Threads::new(limits.parallel.max(settings.sql_statements_max.min(64)))?;
        let db = opening.db.clone();
        let query = match (&opening.reader, &opening.fleet) {
            (Some(reader), _) => Query::read_only(reader.clone(), limits),
            (None, None) => Query::new(db, limits),
            (None, Some(fleet)) => {
                let all = Arc::new(OwnAndCopies(db.clone(), Arc::clone(fleet)));
                Query::across(db, all, limits)
            }
        };
        Ok(Sql {
            query,
            threads: Arc::new(threads),
            slots: Slots::new(settings.sql_statements_max),
        })
    }
}

impl Component<App> for Sql {}

/// A cloud's own database with its copies, for statements.
struct OwnAndCopies(Database, Arc<EdgeCopies>);

/// The same without the copies that cannot be read.
struct ReadableCopies(OwnAndCopies, LeftOut);

impl headwater_query::Snapshots for ReadableCopies {
    fn snapshot(&self) -> headwater::Result<headwater::Snapshot> {
        Ok(self.1.leave_out(self.0.snapshot()?))
    }
}

impl headwater_query::Snapshots for OwnAndCopies {
    fn snapshot(&self) -> headwater::Result<headwater::Snapshot> {
        self.1.across(self.0.snapshot()?)
    }
}

impl App {
    /// SQL over the database.
    pub(crate) fn sql(&self) -> &Sql {
        self.components.required()
    }

    /// SQL over what the request of this task may read.
    pub(crate) fn sql_of_task(&self) -> Query {
        let query = self.sql().query.clone();
        match (ReadScope::of_task().left_out, &self.fleet) {
            (Some(left_out), Some(fleet)) => {
                let all = OwnAndCopies(self.opened_db.clone(), Arc::clone(fleet));
                query.with_snapshots(Arc::new(ReadableCopies(all, left_out)))
            }
            _ => query,
        }
    }

    /// Sequence of the newest record that concerns a table, at most `sequence`, which every reader
    /// sees.
    pub(crate) fn changed_at(&self, table: &str, sequence: u64) -> u64 {
        match &self.fleet {
            None => self.db().changed_at(table).unwrap_or(sequence),
            // Records of edges do not have sequences here: any change may concern any table.
            Some(_) => sequence,
        }
    }
}

/// Owner of the statements that this access allows, through this front end.
pub(crate) fn owner(access: &Access, door: &'static str) -> headwater_query::Owner {
    match access {
        Access::Open { .. } => headwater_query::Owner::FrontEnd(door),
        Access::Token { grant, .. } | Access::Ticket { grant, .. } => {
            headwater_query::Owner::Token(grant.id.clone())
        }
    }
}

/// Limits of statements.
fn limits(settings: &Settings) -> headwater_query::Limits {
    headwater_query::Limits {
        memory: settings.sql_memory,
        all_memory: settings.sql_memory_all,
        time: Some(settings.sql_timeout),
        parallel: std::thread::available_parallelism().map_or(1, |n| n.get().min(8)),
        ..headwater_query::Limits::default()
    }
}
