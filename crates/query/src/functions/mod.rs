//! Functions that time series need beside those of the SQL library.

mod ends;
mod time_bucket;

use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use std::sync::Arc;

/// Adds the functions to a state.
pub(crate) fn register(builder: &mut SessionStateBuilder) {
    let bucket = ScalarUDF::new_from_impl(time_bucket::TimeBucket::new());
    builder
        .scalar_functions()
        .get_or_insert_default()
        .extend([Arc::new(bucket), crate::zones::timezone()]);
    let aggregates = builder.aggregate_functions().get_or_insert_default();
    for end in [ends::End::first(), ends::End::last()] {
        aggregates.push(Arc::new(AggregateUDF::new_from_impl(end)));
    }
}
