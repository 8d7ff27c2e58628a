//! Where `SELECT … INTO` writes: the way of all writes, from the thread that works on the question.
//!
//! Invariants: what is told as written is as durable as any write that is acknowledged; who follows
//! new data is told of it; it is counted like lines.
//! Concurrency: the question's thread waits for the engine and for the log.
//! Failure: a server that only reads refuses before the question is worked on.

use crate::app::App;
use headwater::Batch;
use headwater_ask::influxql::{PointWriter, Stored};
use headwater_ask::{Error, Kind};

/// Writes points of statements into the database of a server.
pub(crate) struct Points<'a>(pub(crate) &'a App);

impl PointWriter for Points<'_> {
    fn is_open(&self) -> Result<(), Error> {
        if !self.0.settings.read_only {
            return Ok(());
        }
        Err(Error::new(
            Kind::ReadOnly,
            "this server lets nobody change anything (the setting read_only)",
        ))
    }

    fn write(&self, points: Batch) -> Result<Stored, Error> {
        let Points(app) = self;
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
