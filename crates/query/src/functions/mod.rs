//! Functions that time series need beside those of the SQL library.

use datafusion::execution::session_state::SessionStateBuilder;

/// Adds the functions to a state.
pub(crate) fn register(_builder: &mut SessionStateBuilder) {}
