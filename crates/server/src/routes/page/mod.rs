//! The page, or its placeholder in a program that was built without it.
//!
//! Invariants: `/` is always answered; other routes do not depend on the page.

mod absent;
#[cfg(feature = "page")]
mod files;

use headwater_shell::Route;

#[cfg(not(feature = "page"))]
use absent as files;

pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Vec<Route<S>> {
    files::routes()
}
