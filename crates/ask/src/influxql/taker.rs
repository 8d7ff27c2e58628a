//! Receivers of the series of an answer: a list of them, or a writer of each as it comes.

use super::Series;
use crate::error::Error;

/// Takes series, one after another.
pub(super) trait Taker {
    /// Takes a series, or more rows of the one before if it goes on.
    ///
    /// # Errors
    /// When nobody takes any more.
    fn take(&mut self, series: Series, goes_on: bool) -> Result<(), Error>;

    /// Whether series are not retained.
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
