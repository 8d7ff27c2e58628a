//! Receivers of the series of an answer: a list, or a writer of each series as it arrives.

use super::Series;
use crate::error::Error;

/// Receives series, one after another.
pub(super) trait Taker {
    /// Receives a series, or more rows of the previous one if `goes_on` is set.
    ///
    /// # Errors
    /// When the receiver no longer accepts series.
    fn take(&mut self, series: Series, goes_on: bool) -> Result<(), Error>;

    /// Whether series are streamed and not retained.
    fn hands_on(&self) -> bool;
}

impl Taker for Vec<Series> {
    fn take(&mut self, mut series: Series, goes_on: bool) -> Result<(), Error> {
        match self.last_mut().filter(|_| goes_on) {
            Some(last) => last.cells.append(&mut series.cells),
            None => self.push(series),
        }
        Ok(())
    }

    fn hands_on(&self) -> bool {
        false
    }
}
