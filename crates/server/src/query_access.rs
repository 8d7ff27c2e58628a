//! Access of a request, as the query languages check it.

use crate::access::Access;
use crate::access::rules::Action;
use headwater::{FieldType, Snapshot};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Rules of a token, as every language checks them.
#[derive(Debug)]
pub(crate) struct QueryAccess(pub(crate) Access);

impl headwater_ask::Access for QueryAccess {
    fn reads(&self, table: &str, tags: &[(String, String)]) -> bool {
        self.0.may_read(table, tags)
    }

    fn writes(&self, table: &str, tags: &[(String, String)]) -> bool {
        self.0.may_write(table, tags)
    }

    /// A rule about some streams of a table does not allow a change of the whole table.
    fn manages(&self, table: &str) -> bool {
        self.0.may(Action::Manage, table, &[])
    }

    fn token(&self) -> Option<String> {
        match &self.0 {
            Access::Open { .. } => None,
            Access::Token { grant, .. } | Access::Ticket { grant, .. } => Some(grant.id.clone()),
        }
    }

    fn reads_some_of(&self, table: &str) -> bool {
        self.0.may_read_some_of(table)
    }

    fn typed_fields(
        &self,
        snapshot: &Snapshot,
        table: &str,
    ) -> headwater::Result<Option<Vec<(String, FieldType)>>> {
        self.0.fields(snapshot, table)
    }

    fn fields(
        &self,
        snapshot: &Snapshot,
        table: &str,
    ) -> headwater::Result<Option<BTreeSet<String>>> {
        if self.0.shows_all_fields(table) {
            return Ok(None);
        }
        let told = self.0.fields(snapshot, table)?.unwrap_or_default();
        Ok(Some(told.into_iter().map(|(name, _)| name).collect()))
    }

    fn reads_everything(&self) -> bool {
        self.0.all(Action::Read)
    }

    fn all(&self) -> bool {
        [Action::Read, Action::Write, Action::Manage]
            .into_iter()
            .all(|action| self.0.all(action))
    }

    fn reads_all(&self) -> bool {
        self.0.reads_all()
    }

    fn may_query(&self) -> bool {
        self.0.any(Action::Read)
    }

    fn writes_some_with_prefix(&self, beginning: &str) -> bool {
        self.0.any_with_prefix(Action::Write, beginning)
    }

    /// Equal rules see the same rows.
    fn key(&self) -> Option<String> {
        let mut key = String::new();
        for rule in self.0.rules()? {
            // Writing to a string cannot fail.
            let _ = writeln!(key, "{rule}");
        }
        for veto in self.0.vetoes() {
            let _ = writeln!(key, "not {veto}");
        }
        Some(key)
    }
}
