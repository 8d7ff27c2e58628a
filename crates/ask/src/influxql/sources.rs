//! Sources of a query: stored measurements, and subqueries.

use headwater_wire::influxql::{Select, SelectSource, Source};

/// The stored measurements among the sources of a query.
pub(super) fn stored(select: &Select) -> Vec<&Source> {
    let sources = select.sources.iter().filter_map(|source| match source {
        SelectSource::Measurement(source) => Some(source),
        SelectSource::Query(_) => None,
    });
    sources.collect()
}

pub(super) fn queries(select: &Select) -> impl Iterator<Item = &Select> {
    select.sources.iter().filter_map(|source| match source {
        SelectSource::Measurement(_) => None,
        SelectSource::Query(select) => Some(&**select),
    })
}

/// The stored measurements of a query and its subqueries.
pub(super) fn all_sources(select: &Select) -> Vec<Source> {
    let mut out: Vec<Source> = stored(select).into_iter().cloned().collect();
    out.extend(queries(select).flat_map(all_sources));
    out
}
