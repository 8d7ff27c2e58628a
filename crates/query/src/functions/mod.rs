//! Functions of time series that the SQL library does not have, and functions that it implements
//! differently from PostgreSQL. `session` registers those that need its other modules:
//! `time_bucket`, `timezone`, gap filling and `nearest`. Each function also has a line in
//! `guards::function_cost`: one without a cost is not registered, and a test reports it.

mod approx_distinct;
mod correlation;
mod date_bin;
mod date_part;
mod decimals;
mod derivative;
mod distinct_rows;
mod distinct_texts;
mod ends;
mod exact;
mod histogram;
pub(crate) mod numbers;
mod percentiles;
mod planner;
mod ranks;
mod series;
mod text_forms;
mod texts;
mod time_bucket;
mod to_char;
mod version;
mod window_sum;

pub(crate) use date_bin::date_bin;
pub(crate) use date_part::date_part;
pub(crate) use series::seconds;
pub(crate) use text_forms::{has_text_form, text_form};
pub(crate) use time_bucket::{ZoneFunctions, time_bucket, width as bucket_width};
pub(crate) use to_char::check_pattern;
pub(crate) use window_sum::too_large as sum_too_large;

use crate::error::Error;
use crate::rewrites::patterns::Escape;
use arrow::datatypes::FieldRef;
use datafusion::common::Result;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::functions_aggregate::{min_max, sum};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, ScalarUDF, WindowUDF};
use std::sync::Arc;

/// Whether a call of an aggregate uses a state of this crate, whatever its function.
pub(crate) fn has_own_state(name: &str, args: &AccumulatorArgs<'_>) -> bool {
    distinct_rows::is_own(name, args.is_distinct)
        || distinct_texts::is_own(name, args)
        || percentiles::is_own(name, args)
}

/// The state of a call: this crate's if it [`has_own_state`], otherwise the function's.
pub(crate) fn state(
    function: &dyn AggregateUDFImpl,
    args: AccumulatorArgs<'_>,
) -> Result<Box<dyn Accumulator>> {
    let name = function.name();
    if distinct_rows::is_own(name, args.is_distinct) {
        return distinct_rows::accumulator(function, args);
    }
    let own = if distinct_texts::is_own(name, &args) {
        distinct_texts::accumulator(&args)
    } else if percentiles::is_own(name, &args) {
        percentiles::accumulator(&args)
    } else {
        None
    };
    own.map_or_else(|| function.accumulator(args), Ok)
}

/// As [`state`], for sliding windows.
pub(crate) fn sliding_state(
    function: &dyn AggregateUDFImpl,
    args: AccumulatorArgs<'_>,
) -> Result<Box<dyn Accumulator>> {
    if distinct_rows::is_own(function.name(), args.is_distinct) {
        let name = function.name();
        let what = format!("{name}: DISTINCT over a sliding window is not supported");
        return Err(Error::unsupported(what).into());
    }
    function.create_sliding_accumulator(args)
}

/// Fields of the state of a call.
pub(crate) fn state_fields(
    function: &dyn AggregateUDFImpl,
    args: StateFieldsArgs<'_>,
) -> Result<Vec<FieldRef>> {
    match distinct_rows::is_own(function.name(), args.is_distinct) {
        true => Ok(distinct_rows::state_fields(&args)),
        false => function.state_fields(args),
    }
}

/// Adds the functions to a state.
pub(crate) fn register(builder: &mut SessionStateBuilder) {
    let own = [
        ScalarUDF::new_from_impl(version::Version::new()),
        ScalarUDF::new_from_impl(to_char::ToChar::new()),
        ScalarUDF::new_from_impl(Escape::similar_to()),
        ScalarUDF::new_from_impl(Escape::like()),
    ];
    let functions = builder.scalar_functions().get_or_insert_default();
    functions.extend(own.into_iter().map(Arc::new));
    functions.extend([date_bin(), date_part()]);
    let accessors = series::Accessor::all().map(ScalarUDF::new_from_impl);
    functions.extend(accessors.map(Arc::new));
    let aggregates = builder.aggregate_functions().get_or_insert_default();
    for end in [ends::End::first(), ends::End::last()] {
        aggregates.push(Arc::new(AggregateUDF::new_from_impl(end)));
    }
    for exact in [
        exact::Exact::extreme(min_max::min_udaf()),
        exact::Exact::extreme(min_max::max_udaf()),
        exact::Exact::sum(sum::sum_udaf()),
    ] {
        aggregates.push(Arc::new(AggregateUDF::new_from_impl(exact)));
    }
    let estimate = approx_distinct::ApproxDistinct::new();
    aggregates.push(Arc::new(AggregateUDF::new_from_impl(estimate)));
    aggregates.push(Arc::new(AggregateUDF::new_from_impl(
        texts::StringAgg::new(),
    )));
    let of_points = series::ALL.into_iter().map(series::Series::new);
    aggregates.extend(of_points.map(AggregateUDF::new_from_impl).map(Arc::new));
    let states = series::StateAgg::new();
    aggregates.push(Arc::new(AggregateUDF::new_from_impl(states)));
    let correlation = correlation::Correlation::new();
    aggregates.push(Arc::new(AggregateUDF::new_from_impl(correlation)));
    let histogram = histogram::Histogram::new();
    aggregates.push(Arc::new(AggregateUDF::new_from_impl(histogram)));
    let windows = builder.window_functions().get_or_insert_default();
    windows.extend(ranks::all());
    let derivative = derivative::Derivative::new();
    windows.push(Arc::new(WindowUDF::new_from_impl(derivative)));
    builder
        .expr_planners()
        .get_or_insert_default()
        .insert(0, Arc::new(planner::Syntax));
}
