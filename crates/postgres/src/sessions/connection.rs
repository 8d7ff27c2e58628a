//! An established session: its messages one after the other.
//!
//! Invariant: after a failed message of the extended protocol, messages are skipped until `Sync`;
//! after a failed statement of a transaction only the end of the transaction is accepted.

use super::errors::{Failure, error, fatal};
use super::front_end::FrontEnd;
use super::link::{Link, Stream};
use super::names::SessionListing;
use super::quota::SessionMemory;
use super::statement::{Portal, Prepared};
use crate::host::Grant;
use crate::messages::{DescribeTarget, Message, TransactionStatus};
use headwater_query::Session;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::OwnedSemaphorePermit;

/// Maximum prepared statements, and maximum portals, of a session.
pub(super) const STATEMENTS_MAX: usize = 1_000;

pub(super) struct Connection<S> {
    pub(super) front_end: Arc<FrontEnd>,
    pub(super) grant: Arc<dyn Grant>,
    pub(super) listing: Arc<SessionListing>,
    pub(super) session: Session,
    pub(super) link: Link<S>,
    pub(super) status: TransactionStatus,
    /// True when data was stored since the transaction began; the end of the transaction cannot
    /// undo that.
    pub(super) changed: bool,
    /// True after the warning that transactions are not supported.
    pub(super) warned: bool,
    pub(super) statements: BTreeMap<String, Arc<Prepared>>,
    pub(super) portals: BTreeMap<String, Portal>,
    /// The session's share of the memory that all sessions may retain.
    pub(super) share: SessionMemory,
    /// True while messages are skipped until `Sync`.
    skipping: bool,
    /// Among the sessions that there may be.
    _permit: OwnedSemaphorePermit,
}

impl<S: Stream> Connection<S> {
    pub(super) fn new(
        front_end: Arc<FrontEnd>,
        grant: Arc<dyn Grant>,
        listing: Arc<SessionListing>,
        session: Session,
        link: Link<S>,
        place: OwnedSemaphorePermit,
    ) -> Connection<S> {
        Connection {
            share: SessionMemory::new(&front_end.quota),
            _permit: place,
            front_end,
            grant,
            listing,
            session,
            link,
            status: TransactionStatus::Idle,
            changed: false,
            warned: false,
            statements: BTreeMap::new(),
            portals: BTreeMap::new(),
            skipping: false,
        }
    }

    /// Serves the session until its end.
    pub(super) async fn run(mut self: Box<Self>) -> io::Result<()> {
        loop {
            self.end_late_cursors();
            let next = match self.cursors_until() {
                None => self.link.next().await,
                Some(until) => {
                    // Sent before the cancellable wait, so that no byte is sent twice.
                    self.link.flush().await?;
                    match tokio::time::timeout_at(until, self.link.next()).await {
                        Ok(next) => next,
                        Err(_) => continue,
                    }
                }
            };
            let message = match next {
                Ok(Message::Terminate) => return Ok(()),
                Ok(message) => message,
                Err(failure) => match self.failed(failure)? {
                    true => return self.link.close().await,
                    false => continue,
                },
            };
            if self.skipping && message != Message::Sync {
                continue;
            }
            let extended = !matches!(message, Message::Query(_));
            if let Err(failure) = self.message(message).await {
                if self.failed(failure)? {
                    return self.link.close().await;
                }
                self.skipping = extended;
                if !extended {
                    self.link.out.ready(self.status);
                }
            }
        }
    }

    /// Reports a failure to the client; true when the session ends.
    fn failed(&mut self, failure: Failure) -> io::Result<bool> {
        match failure {
            Failure::Disconnected(error) => Err(error),
            Failure::Session(notice) => {
                self.link.out.notice(&notice);
                Ok(true)
            }
            Failure::Statement(notice) => {
                self.link.out.notice(&notice);
                if self.status == TransactionStatus::Open {
                    self.status = TransactionStatus::Failed;
                }
                Ok(false)
            }
        }
    }

    async fn message(&mut self, message: Message) -> Result<(), Failure> {
        match message {
            Message::Query(text) => self.simple(&text).await,
            Message::Parse { name, sql, types } => self.parse(name, sql, types).await,
            Message::Bind {
                portal,
                statement,
                formats,
                values,
                results,
            } => self.bind(portal, &statement, &formats, &values, &results),
            Message::Describe(DescribeTarget::Statement, name) => self.describe_statement(&name),
            Message::Describe(DescribeTarget::Portal, name) => self.describe_portal(&name),
            Message::Close(DescribeTarget::Statement, name) => {
                self.statements.remove(&name);
                self.link.out.close_complete();
                Ok(())
            }
            Message::Close(DescribeTarget::Portal, name) => {
                self.portals.remove(&name);
                self.link.out.close_complete();
                Ok(())
            }
            Message::Execute { portal, rows } => self.execute(&portal, rows).await,
            Message::Flush => Ok(self.link.flush().await?),
            Message::Sync => {
                self.skipping = false;
                self.end_of_statement();
                self.link.out.ready(self.status);
                Ok(())
            }
            // A client may still be at a copy that this server has ended.
            Message::CopyData(_) | Message::CopyDone | Message::CopyFail(_) => Ok(()),
            Message::FunctionCall => {
                let notice = error(
                    "0A000",
                    "the function call protocol is not supported: call functions with SELECT",
                );
                // This message is complete in itself, without a Sync after it.
                self.link.out.notice(&notice);
                self.link.out.ready(self.status);
                Ok(())
            }
            Message::Password(_) | Message::Terminate => {
                Err(fatal("08P01", "unexpected message").into())
            }
        }
    }

    /// Outside of transactions portals last until the end of their statement.
    pub(super) fn end_of_statement(&mut self) {
        if self.status == TransactionStatus::Idle {
            self.portals.retain(|_, portal| portal.hold);
        }
    }

    /// Checks that a statement may begin: the token is valid, and no previous statement failed.
    pub(super) fn check(&self, ends_transaction: bool) -> Result<(), Failure> {
        if !self.grant.is_current() {
            return Err(fatal(
                "57P01",
                "terminating connection: its token has expired or was revoked, or a token is now required",
            )
            .into());
        }
        if self.status == TransactionStatus::Failed && !ends_transaction {
            return Err(error(
                "25P02",
                "current transaction is aborted, commands ignored until end of transaction block",
            )
            .into());
        }
        Ok(())
    }

    /// Counts a statement that is over.
    pub(super) fn observe<T>(&self, begun: Instant, result: &Result<T, Failure>) {
        let code = match result {
            Ok(_) => "00000",
            Err(Failure::Statement(notice) | Failure::Session(notice)) => &notice.sqlstate,
            Err(Failure::Disconnected(_)) => "08006",
        };
        self.front_end.metrics.statement(code, begun.elapsed());
    }
}
