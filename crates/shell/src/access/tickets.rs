//! Validation of tickets, and their creation.
//!
//! Invariants: a key that was presented with a token is trusted as long as that token is valid.
//! The rules of the subject in the lists of this node count, whatever the ticket says; a subject
//! that is missing there has no rights, however new the list of the ticket is. A ticket that is
//! older than the revocation of its subject is invalid, regardless of the local lists.
//! Concurrency: a few keys under a lock, which is released before any wait. Failure: a refusal does
//! not tell the client the reason; the reason is in the log.

use super::Access;
use super::guard::{Denied, Guard};
use super::rules::Action;
use super::ticket::{
    Audience, PublicKey, TICKET_VALIDITY, Ticket, TicketError, TicketKey, verified,
};
use super::tokens::Grant;
use headwater::{StreamName, Timestamp};
use std::sync::Arc;

/// Newest removed tokens of a received list that other nodes are told of.
const RECEIVED_TOLD: usize = 32;

impl Guard {
    /// Says which database this node answers for, and which keys a setting trusts.
    pub fn take_tickets(&self, audience: Audience, keys: Vec<PublicKey>) {
        let mut all = self.ticket_keys.write();
        (all.audience, all.set) = (Some(audience), keys);
    }

    /// Trusts a key that was presented with a token, if that token reads everything. True when it
    /// does.
    pub fn trust(&self, access: &Access, key: PublicKey) -> bool {
        let Access::Token { grant, .. } = access else {
            return false;
        };
        if !access.reads_all() {
            return false;
        }
        self.ticket_keys.write().show(key, &grant.id);
        true
    }

    /// Keys that are trusted now.
    fn trusted(&self) -> Vec<PublicKey> {
        let keys = self.ticket_keys.read();
        keys.trusted(|id| self.of_id(id).is_some())
    }

    /// Rights of a request with this ticket.
    ///
    /// # Errors
    /// When the ticket is refused; the reason is in the log.
    pub(crate) fn admit_ticket(
        self: &Arc<Self>,
        text: &str,
        route: &str,
    ) -> Result<Access, Denied> {
        if self.is_open() {
            let guard = Arc::clone(self);
            return Ok(Access::Open { guard });
        }
        let read = verified(text, &self.trusted()).map(|(ticket, _)| ticket);
        let admitted = read.and_then(|ticket| self.look_at(ticket, route));
        admitted.map_err(|error| {
            tracing::debug!(%error, "a ticket was refused");
            Denied::Ticket
        })
    }

    fn look_at(self: &Arc<Self>, ticket: Ticket, route: &str) -> Result<Access, TicketError> {
        if self.ticket_keys.read().audience != Some(ticket.audience) {
            return Err(TicketError::Audience);
        }
        if ticket.route != route {
            return Err(TicketError::Route);
        }
        if !ticket.is_valid_at(self.time()) {
            return Err(TicketError::Time);
        }
        let grant = self.subject(&ticket).ok_or(TicketError::Revoked)?;
        Ok(Access::Ticket {
            grant,
            ticket: Arc::new(ticket),
            guard: Arc::clone(self),
        })
    }

    /// Recently revoked tokens, from the local list and from reports of other nodes, for
    /// forwarding.
    #[must_use]
    pub fn revoked(&self) -> String {
        let tokens = self.own();
        let received = self.with_received(|list| {
            let newest = list.removed.iter().rev().take(RECEIVED_TOLD);
            newest.cloned().collect::<Vec<_>>()
        });
        let received = received.unwrap_or_default();
        let own = tokens
            .iter()
            .flat_map(|tokens| tokens.revoked_lately(self.now()));
        let received = received.iter().map(|(id, list)| (*list, id.as_str()));
        self.revocations.read().text(own.chain(received))
    }

    /// Accepts a report of revoked tokens from a client whose token reads everything. False when
    /// the report is refused.
    pub fn take_revoked(&self, access: &Access, text: &str) -> bool {
        let is_trusted = matches!(access, Access::Token { .. }) && access.reads_all();
        is_trusted && self.take_revoked_of_cloud(text)
    }

    /// Takes the same of the cloud that this node has joined.
    pub fn take_revoked_of_cloud(&self, text: &str) -> bool {
        self.revocations.write().merge(text)
    }

    /// The clock against which tickets are checked.
    fn time(&self) -> Timestamp {
        let ns = self.now().as_nanosecond();
        Timestamp::from_nanos(i64::try_from(ns).unwrap_or(i64::MAX))
    }

    /// Subject of a ticket with its rules, if any rights remain.
    fn subject(&self, ticket: &Ticket) -> Option<Arc<Grant>> {
        let revoked = self.revocations.read().since(&ticket.subject);
        if revoked.is_some_and(|list| ticket.list < list) {
            return None;
        }
        self.of_id(&ticket.subject)
    }

    /// True while an admitted ticket is still valid.
    pub(super) fn is_ticket_valid(&self, ticket: &Ticket) -> bool {
        !self.is_open() && ticket.is_valid_at(self.time()) && self.subject(ticket).is_some()
    }

    /// A ticket for the subject of this access, for reading on a route of a database: some streams,
    /// or all readable streams if `streams` is empty. `None` where tokens are not in use, so that a
    /// ticket is not needed, or no stream is readable.
    #[must_use]
    pub fn ticket(
        &self,
        key: &TicketKey,
        access: &Access,
        (audience, route): (Audience, &str),
        streams: &[StreamName],
    ) -> Option<String> {
        let Access::Token { grant, .. } = access else {
            return None;
        };
        // The rights of a veto are no pattern.
        if grant.vetoes.iter().any(|veto| veto.action == Action::Read) {
            return None;
        }
        let list = self.number_of(grant)?;
        let reads = grant.rules.iter().filter(|rule| rule.is_read());
        let patterns: Vec<String> = reads.map(|rule| rule.pattern.to_string()).collect();
        if patterns.is_empty() {
            return None;
        }
        let issued_ns = self.time().as_nanos();
        let holds = i64::try_from(TICKET_VALIDITY.as_nanos()).unwrap_or(0);
        Some(key.sign(&Ticket {
            issued_ns,
            ends_ns: issued_ns.saturating_add(holds),
            audience,
            route: route.to_owned(),
            subject: grant.id.clone(),
            list,
            patterns,
            streams: streams.to_vec(),
        }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use crate::access::token::Carried;
    use crate::access::tokens::{NewToken, TokenFile};
    use headwater_io::ManualClock;
    use std::path::Path;
    use std::time::Duration;

    const AUDIENCE: Audience = Audience {
        identity: 1,
        incarnation: 1,
    };
    const ROUTE: &str = "/api/v1/tiles";

    /// A node with the same tokens as another, with a separate clock.
    struct Node {
        guard: Arc<Guard>,
        file: TokenFile,
        clock: Arc<ManualClock>,
        _dir: tempfile::TempDir,
    }

    fn clock(seconds: i64) -> Arc<ManualClock> {
        let at = 1_700_000_000_000_000_000 + seconds * 1_000_000_000;
        Arc::new(ManualClock::new(Timestamp::from_nanos(at)))
    }

    impl Node {
        fn new(tokens: Option<&Path>, seconds: i64) -> Node {
            let dir = tempfile::tempdir().unwrap();
            if let Some(tokens) = tokens {
                std::fs::copy(tokens, dir.path().join("tokens.json")).unwrap();
            }
            let clock = clock(seconds);
            let file = TokenFile::of_database(dir.path()).with_clock(Arc::clone(&clock) as _);
            let guard = Arc::new(Guard::new(file.clone()).unwrap());
            guard.take_tickets(AUDIENCE, Vec::new());
            Node {
                guard,
                file,
                clock,
                _dir: dir,
            }
        }

        fn access(&self, token: &str) -> Access {
            self.guard.admit(&Carried::Token(token.to_owned())).unwrap()
        }

        fn admit(&self, ticket: &str) -> Option<Access> {
            self.guard.admit_ticket(ticket, ROUTE).ok()
        }
    }

    fn create_token(file: &TokenFile, name: &str, rules: &[&str]) -> String {
        let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        file.create(NewToken {
            name: name.to_owned(),
            rules,
            expires: None,
        })
        .unwrap()
    }

    fn pump(id: &str) -> StreamName {
        StreamName::new("pumps", [("id", id)])
    }

    /// A desk that makes tickets, a node that trusts it, and the token of a reader of pumps.
    fn world() -> (Node, TicketKey, String, Node) {
        let desk = Node::new(None, 0);
        let own = create_token(&desk.file, "desk", &["read *"]);
        let reader = create_token(&desk.file, "reader", &["read pumps", "manage *"]);
        desk.guard.refresh();
        let node = Node::new(Some(&desk.file.path()), 0);
        let key = TicketKey::of_seed(&[7; 32]).unwrap();
        assert!(node.guard.trust(&node.access(&own), key.public()));
        (desk, key, reader, node)
    }

    fn issue(desk: &Node, key: &TicketKey, token: &str, streams: &[StreamName]) -> String {
        let access = desk.access(token);
        let ticket = desk.guard.ticket(key, &access, (AUDIENCE, ROUTE), streams);
        ticket.unwrap()
    }

    #[test]
    fn a_ticket_reads_what_it_names_and_nothing_else() {
        let (desk, key, reader, node) = world();
        let ticket = issue(&desk, &key, &reader, &[pump("1")]);
        let access = node.admit(&ticket).unwrap();
        assert!(access.may_read_stream(&pump("1")));
        // Another stream that its subject may read.
        assert!(!access.may_read_stream(&pump("2")));
        assert!(!access.may_read_stream(&StreamName::new("payroll", [("id", "1")])));
        assert!(!access.reads_all() && !access.all(Action::Manage));
        let manages = access.may(Action::Manage, "pumps", pump("1").tags());
        assert!(!manages, "a ticket is read-only");
        assert!(access.is_current());
        let all = issue(&desk, &key, &reader, &[]);
        let access = node.admit(&all).unwrap();
        assert!(access.may_read_stream(&pump("2")));
        assert!(!access.may_read_stream(&StreamName::new("payroll", [("id", "1")])));
    }

    #[test]
    fn a_ticket_is_for_one_route_of_one_database_and_its_time() {
        let (desk, key, reader, node) = world();
        let ticket = issue(&desk, &key, &reader, &[pump("1")]);
        assert!(node.guard.admit_ticket(&ticket, "/api/v1/scan").is_err());
        let other = Audience {
            incarnation: 2,
            ..AUDIENCE
        };
        let access = desk.access(&reader);
        let elsewhere = desk.guard.ticket(&key, &access, (other, ROUTE), &[]);
        assert!(node.admit(&elsewhere.unwrap()).is_none());
        // Clocks that differ by two minutes are tolerated; ten minutes are not.
        for (seconds, holds) in [(120, true), (600, false)] {
            for sign in [1, -1] {
                let node = Node::new(Some(&desk.file.path()), seconds * sign);
                node.guard.take_tickets(AUDIENCE, vec![key.public()]);
                assert_eq!(node.admit(&ticket).is_some(), holds, "{seconds} s");
            }
        }
        let admitted = node.admit(&ticket).unwrap();
        node.clock.advance(Duration::from_secs(421));
        assert!(node.admit(&ticket).is_none() && !admitted.is_current());
    }

    #[test]
    fn a_revoked_subject_or_desk_has_no_tickets() {
        let (desk, key, reader, node) = world();
        let ticket = issue(&desk, &key, &reader, &[pump("1")]);
        let admitted = node.admit(&ticket).unwrap();
        node.file.revoke("reader").unwrap();
        node.guard.refresh();
        assert!(node.admit(&ticket).is_none() && !admitted.is_current());
        let (desk, key, reader, node) = world();
        let ticket = issue(&desk, &key, &reader, &[pump("1")]);
        node.file.revoke("desk").unwrap();
        node.guard.refresh();
        assert!(node.admit(&ticket).is_none());
    }

    #[test]
    fn a_revocation_that_is_told_ends_tickets_before_the_list_comes() {
        let (desk, key, reader, _) = world();
        let other = create_token(&desk.file, "other", &["read pumps"]);
        let narrow = create_token(&desk.file, "narrow", &["read pumps"]);
        let own = create_token(&desk.file, "desk again", &["read *"]);
        desk.guard.refresh();
        // A local list that is newer than the ticket would refuse subjects that are missing in the
        // list.
        let node = Node::new(Some(&desk.file.path()), 0);
        assert!(node.guard.trust(&node.access(&own), key.public()));
        let ticket = issue(&desk, &key, &reader, &[pump("1")]);
        let others = issue(&desk, &key, &other, &[pump("1")]);
        let admitted = node.admit(&ticket).unwrap();
        assert_eq!(desk.guard.revoked(), "");
        desk.file.revoke("reader").unwrap();
        desk.guard.refresh();
        let told = desk.guard.revoked();
        // A report is refused from a token that may not read everything.
        assert!(!node.guard.take_revoked(&node.access(&narrow), &told));
        assert!(node.admit(&ticket).is_some());
        assert!(node.guard.take_revoked(&node.access(&own), &told));
        assert!(node.admit(&ticket).is_none() && !admitted.is_current());
        assert!(node.admit(&others).is_some());
        // The report is passed on, and again after a restart of the node.
        assert_eq!(node.guard.revoked(), told);
        let again = Guard::new(desk.file.clone()).unwrap();
        assert_eq!(again.revoked(), told);
        // A new token under the same name has tickets again, where the list with it is.
        let back = create_token(&desk.file, "reader", &["read pumps"]);
        std::fs::copy(desk.file.path(), node.file.path()).unwrap();
        desk.guard.refresh();
        node.guard.refresh();
        let ticket = issue(&desk, &key, &back, &[pump("1")]);
        assert!(node.admit(&ticket).is_some());
        // No ticket is older than that.
        desk.clock.advance(Duration::from_secs(1_000));
        create_token(&desk.file, "late", &[]);
        desk.guard.refresh();
        assert_eq!(desk.guard.revoked(), "");
    }

    #[test]
    fn a_subject_that_the_list_here_does_not_have_is_refused_however_old_the_list() {
        let (desk, key, _, node) = world();
        let young = create_token(&desk.file, "young", &["read pumps"]);
        desk.guard.refresh();
        let ticket = issue(&desk, &key, &young, &[pump("1")]);
        assert!(node.admit(&ticket).is_none());
        std::fs::copy(desk.file.path(), node.file.path()).unwrap();
        node.guard.refresh();
        assert!(node.admit(&ticket).unwrap().may_read_stream(&pump("1")));
    }

    #[test]
    fn a_subject_that_the_list_here_revoked_is_refused_however_new_the_ticket() {
        let (desk, key, reader, node) = world();
        node.file.revoke("reader").unwrap();
        // The list of the dispatcher goes on without it.
        for name in ["a", "b", "c"] {
            create_token(&desk.file, name, &[]);
        }
        desk.guard.refresh();
        node.guard.refresh();
        let ticket = issue(&desk, &key, &reader, &[pump("1")]);
        assert!(node.admit(&ticket).is_none());
        // The list remembers for longer than it is told to other nodes, and after a restart.
        for at in [&desk, &node] {
            at.clock.advance(Duration::from_secs(86_400));
        }
        create_token(&node.file, "later", &[]);
        node.guard.refresh();
        assert_eq!(node.guard.revoked(), "");
        for at in ["d", "e"] {
            create_token(&desk.file, at, &[]);
        }
        desk.guard.refresh();
        let ticket = issue(&desk, &key, &reader, &[pump("1")]);
        assert!(node.admit(&ticket).is_none());
        let again = Arc::new(Guard::new(node.file.clone()).unwrap());
        again.take_tickets(AUDIENCE, vec![key.public()]);
        assert!(again.admit_ticket(&ticket, ROUTE).is_err());
    }

    #[test]
    fn a_key_is_trusted_for_a_token_that_reads_everything_only() {
        let (desk, _, reader, node) = world();
        let key = TicketKey::of_seed(&[8; 32]).unwrap();
        assert!(!node.guard.trust(&node.access(&reader), key.public()));
        let ticket = issue(&desk, &key, &reader, &[pump("1")]);
        assert!(node.admit(&ticket).is_none());
    }
}
