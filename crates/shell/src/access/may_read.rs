//! Whether a request may read, write or manage a stream: the only decision, for every route,
//! language and front end.
//!
//! Allowed is what a rule of the token allows, no veto takes away, the node does not bar, and, for
//! a ticket, what it names; everything where tokens are not in use. Invariants: pure. Concurrency:
//! immutable values.

use super::Access;
use super::guard::is_vetoed;
use super::rules::{AccessRule, Action};
use headwater::StreamName;

impl Access {
    /// True when the action is allowed on all streams.
    #[must_use]
    pub fn all(&self, action: Action) -> bool {
        !self.is_barred(action)
            && self.named().is_none()
            && self.vetoes().iter().all(|veto| veto.action != action)
            && self.rules().is_none_or(|rules| {
                rules
                    .iter()
                    .any(|r| r.action == action && r.pattern.is_everything())
            })
    }

    /// True when the action is allowed on a stream.
    #[must_use]
    pub fn may(&self, action: Action, table: &str, tags: &[(String, String)]) -> bool {
        let is_it = |name: &StreamName| name.table() == table && name.tags() == tags;
        self.named().is_none_or(|named| named.iter().any(is_it))
            && self.rules_allow(action, table, tags)
    }

    /// True when rules allow this action on a stream, or without tags on its table.
    pub(crate) fn rules_allow(
        &self,
        action: Action,
        table: &str,
        tags: &[(String, String)],
    ) -> bool {
        !self.is_barred(action)
            && !is_vetoed(self.vetoes(), action, table, tags)
            && self.rules().is_none_or(|rules| {
                rules
                    .iter()
                    .any(|r| r.action == action && r.pattern.matches(table, tags))
            })
    }

    /// True when the action is allowed on some table whose name is longer than `beginning` and
    /// starts with it.
    pub fn any_with_prefix(&self, action: Action, beginning: &str) -> bool {
        !self.is_barred(action)
            && !self.is_vetoed_everywhere(action)
            && self.rules().is_none_or(|rules| {
                let mut of_action = rules.iter().filter(|r| r.action == action);
                of_action.any(|r| r.pattern.may_concern_prefix(beginning))
            })
    }

    /// True when the action is allowed on any stream.
    pub fn any(&self, action: Action) -> bool {
        let mut rules = self.rules().map(|rules| rules.iter());
        !self.is_barred(action)
            && !self.is_vetoed_everywhere(action)
            && rules
                .as_mut()
                .is_none_or(|rules| rules.any(|r| r.action == action))
    }

    /// True when every stream is readable, so that no data must be left out.
    pub fn reads_all(&self) -> bool {
        self.all(Action::Read)
    }

    /// True when every stream is writable.
    pub fn writes_all(&self) -> bool {
        self.all(Action::Write)
    }

    /// True when a stream is readable.
    pub fn may_read(&self, table: &str, tags: &[(String, String)]) -> bool {
        self.may(Action::Read, table, tags)
    }

    /// True when a stream is readable.
    pub fn may_read_stream(&self, stream: &StreamName) -> bool {
        self.may_read(stream.table(), stream.tags())
    }

    /// True when some stream of a table could be read; each must still be checked.
    pub fn may_read_some_of(&self, table: &str) -> bool {
        let is_it = |name: &StreamName| name.table() == table;
        if !self.named().is_none_or(|named| named.iter().any(is_it)) {
            return false;
        }
        // A veto without tags removes all streams of the table.
        let is_hidden =
            |veto: &AccessRule| veto.action == Action::Read && veto.pattern.matches(table, &[]);
        !self.vetoes().iter().any(is_hidden)
            && self.rules().is_none_or(|rules| {
                rules
                    .iter()
                    .any(|r| r.action == Action::Read && r.pattern.may_concern(table))
            })
    }

    /// True when a stream is writable.
    pub fn may_write(&self, table: &str, tags: &[(String, String)]) -> bool {
        self.may(Action::Write, table, tags)
    }

    /// True when a stream is writable.
    pub fn may_write_stream(&self, stream: &StreamName) -> bool {
        self.may_write(stream.table(), stream.tags())
    }
}
