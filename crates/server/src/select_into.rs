//! Writer of `SELECT … INTO`: the common write path, on the thread that evaluates the query.
//!
//! Invariants: points reported as written are as durable as any acknowledged write; subscribers of
//! new data receive them; they are counted like lines.
//! Concurrency: the query's thread waits for the engine and for the log.
//! Failure: a read-only server refuses before the query is evaluated.

use crate::app::App;
use headwater::Batch;
use headwater_ask::influxql::{PointWriter, Stored};
use headwater_ask::{Error, QueryErrorKind};

/// Writes the points of `SELECT … INTO` to the database of a server.
pub(crate) struct SelectIntoWriter<'a>(pub(crate) &'a App);

impl PointWriter for SelectIntoWriter<'_> {
    fn is_open(&self) -> Result<(), Error> {
        if !self.0.settings.read_only {
            return Ok(());
        }
        Err(Error::new(
            QueryErrorKind::ReadOnly,
            "this server is read-only (setting read_only)",
        ))
    }

    fn write(&self, points: Batch) -> Result<Stored, Error> {
        let SelectIntoWriter(app) = self;
        let news = app.live.select(points.entries());
        let ticket = app.db().write(points)?;
        let values = ticket.values();
        let written = ticket.wait()?;
        app.live.publish(news, &written.refused);
        app.metrics.points_accepted(values);
        for refused in &written.refused {
            app.metrics.lines_refused(refused.code, 1);
        }
        Ok(Stored {
            rows: written.accepted,
            refused: written.refused.first().map(|r| r.message.clone()),
        })
    }
}
