//! SQL over the database of a node.

use super::Opening;
use crate::app::App;
use crate::component::Component;
use crate::start_error::StartError;
use headwater::Database;
use headwater_fleet::Fleet;
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
        let limits = settings.sql_limits();
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
struct OwnAndCopies(Database, Arc<Fleet>);

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
