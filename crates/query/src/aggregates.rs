//! Facts of every aggregate function, in one table: what `DISTINCT` means to it, and the type of
//! its result by PostgreSQL's rules.
//!
//! Invariant: a session has no aggregate that the table lacks (test).

/// Meaning of `DISTINCT` to an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Distinct {
    /// The function implements it.
    Itself,
    /// Repeated rows do not change the result.
    Irrelevant,
    /// A set of the rows is put before the function (`functions::distinct_rows`).
    Rows,
}

/// Kind of result by the kind of the first argument, in PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Result {
    /// `numeric` of integers and of `numeric`.
    Numeric,
    /// The kind of the argument.
    Argument,
    /// An integer.
    Count,
    /// Another type, whatever the argument.
    Other,
}

/// Facts of an aggregate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aggregate {
    pub(crate) name: &'static str,
    pub(crate) distinct: Distinct,
    pub(crate) result: Result,
}

const fn row(name: &'static str, distinct: Distinct, result: Result) -> Aggregate {
    Aggregate {
        name,
        distinct,
        result,
    }
}

/// Every aggregate, by name, in order.
#[rustfmt::skip]
const TABLE: &[Aggregate] = &[
    row("any_value",                           Distinct::Irrelevant,  Result::Other),
    row("approx_distinct",                     Distinct::Irrelevant,  Result::Other),
    row("approx_median",                       Distinct::Rows,        Result::Other),
    row("approx_percentile_cont",              Distinct::Rows,        Result::Other),
    row("approx_percentile_cont_with_weight",  Distinct::Rows,        Result::Other),
    row("array_agg",                           Distinct::Itself,      Result::Other),
    row("avg",                                 Distinct::Itself,      Result::Numeric),
    row("bit_and",                             Distinct::Irrelevant,  Result::Other),
    row("bit_or",                              Distinct::Irrelevant,  Result::Other),
    row("bit_xor",                             Distinct::Itself,      Result::Other),
    row("bool_and",                            Distinct::Irrelevant,  Result::Other),
    row("bool_or",                             Distinct::Irrelevant,  Result::Other),
    row("corr",                                Distinct::Rows,        Result::Other),
    row("count",                               Distinct::Itself,      Result::Count),
    row("counter_agg",                         Distinct::Rows,        Result::Other),
    row("covar",                               Distinct::Rows,        Result::Other),
    row("covar_pop",                           Distinct::Rows,        Result::Other),
    row("covar_samp",                          Distinct::Rows,        Result::Other),
    row("first",                               Distinct::Irrelevant,  Result::Other),
    row("first_value",                         Distinct::Irrelevant,  Result::Other),
    row("gauge_agg",                           Distinct::Rows,        Result::Other),
    row("grouping",                            Distinct::Irrelevant,  Result::Other),
    row("histogram",                           Distinct::Rows,        Result::Other),
    row("integral_over",                       Distinct::Rows,        Result::Other),
    row("last",                                Distinct::Irrelevant,  Result::Other),
    row("last_value",                          Distinct::Irrelevant,  Result::Other),
    row("lttb",                                Distinct::Rows,        Result::Other),
    row("max",                                 Distinct::Irrelevant,  Result::Argument),
    row("mean",                                Distinct::Itself,      Result::Numeric),
    row("median",                              Distinct::Itself,      Result::Other),
    row("min",                                 Distinct::Irrelevant,  Result::Argument),
    row("minmax",                              Distinct::Rows,        Result::Other),
    row("nth_value",                           Distinct::Rows,        Result::Other),
    row("percentile_cont",                     Distinct::Itself,      Result::Other),
    row("quantile_cont",                       Distinct::Itself,      Result::Other),
    row("regr_avgx",                           Distinct::Rows,        Result::Other),
    row("regr_avgy",                           Distinct::Rows,        Result::Other),
    row("regr_count",                          Distinct::Rows,        Result::Other),
    row("regr_intercept",                      Distinct::Rows,        Result::Other),
    row("regr_r2",                             Distinct::Rows,        Result::Other),
    row("regr_slope",                          Distinct::Rows,        Result::Other),
    row("regr_sxx",                            Distinct::Rows,        Result::Other),
    row("regr_sxy",                            Distinct::Rows,        Result::Other),
    row("regr_syy",                            Distinct::Rows,        Result::Other),
    row("state_agg",                           Distinct::Rows,        Result::Other),
    row("stddev",                              Distinct::Rows,        Result::Numeric),
    row("stddev_pop",                          Distinct::Rows,        Result::Numeric),
    row("stddev_samp",                         Distinct::Rows,        Result::Numeric),
    row("string_agg",                          Distinct::Itself,      Result::Other),
    row("sum",                                 Distinct::Itself,      Result::Argument),
    row("time_weight",                         Distinct::Rows,        Result::Other),
    row("var",                                 Distinct::Rows,        Result::Numeric),
    row("var_pop",                             Distinct::Rows,        Result::Numeric),
    row("var_population",                      Distinct::Rows,        Result::Numeric),
    row("var_samp",                            Distinct::Rows,        Result::Numeric),
    row("var_sample",                          Distinct::Rows,        Result::Numeric),
];

/// Facts of an aggregate; `None` for another function.
pub(crate) fn aggregate(name: &str) -> Option<&'static Aggregate> {
    let at = TABLE.binary_search_by(|row| row.name.cmp(name)).ok()?;
    TABLE.get(at)
}

/// True for the name of a function that returns one row of any number of rows.
#[must_use]
pub fn is_aggregate(name: &str) -> bool {
    aggregate(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::execution::session_state::SessionStateBuilder;

    #[test]
    fn every_aggregate_of_a_session_is_in_the_table_in_order() {
        let mut builder = SessionStateBuilder::new_with_default_features();
        crate::functions::register(&mut builder);
        let functions = builder.aggregate_functions().take().unwrap_or_default();
        let names = functions.iter().flat_map(|function| {
            let aliases = function.aliases().iter().map(String::as_str);
            std::iter::once(function.name()).chain(aliases)
        });
        let mut missing: Vec<&str> = names.filter(|name| aggregate(name).is_none()).collect();
        missing.sort_unstable();
        assert!(
            missing.is_empty(),
            "say in aggregates.rs what these are: {missing:?}"
        );
        assert!(TABLE.is_sorted_by(|a, b| a.name < b.name));
    }
}
