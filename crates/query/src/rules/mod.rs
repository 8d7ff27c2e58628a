//! Rules that rewrite the meaning of a statement, before and after DataFusion's own rules.
//!
//! [`arguments`] converts function arguments as PostgreSQL does, [`lengths`] compares lengths of
//! time, [`epoch_bins`] finds bins of time written as arithmetic, [`hex_texts`] decodes texts that
//! become bytes, [`time_texts`] parses texts of times, [`truths`] texts compared with booleans,
//! [`text_forms`] formats values, [`numbers`] rounds, prevents wrap-around and uses a single NaN
//! (`numeric` identifies decimals, `computed` finds the nodes to visit), [`lists`] keeps two lists
//! of one column separate, [`order_once`] and [`semi_joins`] remove duplicate keys,
//! [`distinct_order`] recognises a key that was cast, and [`keep_names`] changes expressions
//! without changing the names of columns. Rules for time zones are in `zones`, the rule for the
//! pyramid in `pyramid`, resource guards in `guards`.
//!
//! Invariant: a rule does not change the name or type of a column that a client sees.

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
