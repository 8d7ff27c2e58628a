//! The page, or what stands in its place in a program that was built without it.
//!
//! Invariants: `/` is always answered; what else there is does not depend on the page.

mod absent;
#[cfg(feature = "page")]
mod files;

use headwater_shell::Route;

#[cfg(not(feature = "page"))]
use absent as files;

pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Vec<Route<S>> {
    files::routes()
}
