//! Transactions, which have no effect: drivers send `BEGIN`, `COMMIT`, `ROLLBACK` and savepoints,
//! and each statement is stored when it ends.
//!
//! Invariants: the status of a session is the one that PostgreSQL would have. A client is told once
//! that there are no transactions, and each time that a rollback leaves something stored.

use super::commands::Command;
use super::connection::Connection;
use super::errors::{Failure, error, information, warning};
use super::link::Stream;
use crate::messages::TransactionStatus;

impl<S: Stream> Connection<S> {
    pub(super) fn begin(&mut self) -> &'static str {
        if self.status == TransactionStatus::Idle {
            self.status = TransactionStatus::Open;
            self.changed = false;
            if !self.warned {
                self.warned = true;
                let mut notice = information(
                    "transactions are not supported: each statement is stored when it ends",
                );
                notice.detail = Some("BEGIN, COMMIT and ROLLBACK are accepted for drivers; this notice is sent once per session.".to_owned());
                self.link.out.notice(&notice);
            }
        } else {
            let notice = warning("25001", "there is already a transaction in progress");
            self.link.out.notice(&notice);
        }
        "BEGIN"
    }

    pub(super) fn commit(&mut self) -> &'static str {
        let failed = self.status == TransactionStatus::Failed;
        self.end_of_transaction();
        if failed { "ROLLBACK" } else { "COMMIT" }
    }

    pub(super) fn rollback(&mut self) -> &'static str {
        if self.changed && self.status != TransactionStatus::Idle {
            let notice = warning(
                "01000",
                "what was stored since BEGIN stays: there are no transactions to roll back",
            );
            self.link.out.notice(&notice);
        }
        self.end_of_transaction();
        "ROLLBACK"
    }

    fn end_of_transaction(&mut self) {
        if self.status == TransactionStatus::Idle {
            let notice = warning("25P01", "there is no transaction in progress");
            self.link.out.notice(&notice);
        }
        self.status = TransactionStatus::Idle;
        self.changed = false;
        self.portals.retain(|_, portal| portal.hold);
    }

    pub(super) fn savepoint(&mut self, command: &Command) -> Result<&'static str, Failure> {
        if self.status == TransactionStatus::Idle {
            return Err(error("25P01", "savepoints can only be used in transaction blocks").into());
        }
        Ok(match command {
            Command::Savepoint => "SAVEPOINT",
            Command::Release => "RELEASE",
            _ => {
                if self.changed {
                    let notice = warning(
                        "01000",
                        "what was stored since the savepoint stays: there are no transactions to roll back",
                    );
                    self.link.out.notice(&notice);
                }
                self.status = TransactionStatus::Open;
                "ROLLBACK"
            }
        })
    }
}
