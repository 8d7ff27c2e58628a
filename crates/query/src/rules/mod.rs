//! Rules that rewrite what a statement means, before and after DataFusion's own.
//!
//! [`arguments`] gives functions what they take in PostgreSQL,
//! [`lengths`] compares lengths of time, [`epoch_bins`] finds bins of time written as arithmetic,
//! [`hex_texts`] makes bytes readable where text is expected, [`time_texts`] reads texts of times,
//! [`truths`] those beside truth values, [`text_forms`] writes values, [`numbers`] rounds
//! (`numeric` identifies decimals), does not wrap around and knows one NaN (`computed` finds the
//! nodes to visit), [`lists`] keeps two lists of one column apart, [`order_once`] and
//! [`semi_joins`] visit keys once, [`distinct_order`] knows a key that was cast, and [`keep_names`]
//! changes expressions without changing the names of columns.
//! Rules for time zones are in `zones`, the one that replaces queries by the pyramid in `pyramid`,
//! resource guards in `guards`.
//!
//! Invariant: a rule changes no name and no type of a column that a client sees.

pub(crate) mod arguments;
mod computed;
pub(crate) mod distinct_order;
pub(crate) mod epoch_bins;
pub(crate) mod hex_texts;
pub(crate) mod keep_names;
pub(crate) mod lengths;
pub(crate) mod lists;
pub(crate) mod numbers;
mod numeric;
pub(crate) mod order_once;
pub(crate) mod semi_joins;
pub(crate) mod text_forms;
pub(crate) mod time_texts;
pub(crate) mod truths;
