//! Filters of a query, which select series.

use super::invalid;
use crate::error::Error;
use headwater::StreamName;
use headwater_wire::opentsdb::{FilterKind, SubQuestion};
use regex::{Regex, RegexBuilder};
use std::collections::{BTreeSet, HashSet};

/// Memory of a compiled regular expression.
const REGEX_BYTES_MAX: usize = 1 << 20;

enum Test {
    /// The value is in the set, or with `false` is not; the second flag ignores case.
    Values(HashSet<String>, bool, bool),
    Pattern(Regex),
    NotThere,
}

pub(super) struct Filters {
    tests: Vec<(String, Test)>,
    group_by: BTreeSet<String>,
    /// Tags to which series are restricted.
    only: Option<BTreeSet<String>>,
}

impl Filters {
    pub(super) fn new(query: &SubQuestion) -> Result<Filters, Error> {
        let mut tests = Vec::with_capacity(query.filters.len());
        for filter in &query.filters {
            tests.push((filter.key.clone(), test(&filter.kind)?));
        }
        let keys = || query.filters.iter().map(|f| f.key.clone());
        let group_by = query.filters.iter().filter(|f| f.group_by);
        Ok(Filters {
            tests,
            group_by: group_by.map(|f| f.key.clone()).collect(),
            only: query.explicit_tags.then(|| keys().collect()),
        })
    }

    pub(super) fn matches(&self, stream: &StreamName) -> bool {
        let only = self.only.as_ref();
        if only.is_some_and(|only| stream.tags().iter().any(|(key, _)| !only.contains(key))) {
            return false;
        }
        self.tests.iter().all(|(key, test)| {
            let value = stream.tag(key);
            match (test, value) {
                (Test::NotThere, value) => value.is_none(),
                (_, None) => false,
                (Test::Values(values, wanted, any_case), Some(value)) => {
                    let is_one = match any_case {
                        true => values.contains(&value.to_lowercase()),
                        false => values.contains(value),
                    };
                    is_one == *wanted
                }
                (Test::Pattern(regex), Some(value)) => regex.is_match(value),
            }
        })
    }

    /// The values by which series are grouped.
    pub(super) fn group(&self, stream: &StreamName) -> Vec<String> {
        let value = |key: &String| stream.tag(key).unwrap_or_default().to_owned();
        self.group_by.iter().map(value).collect()
    }
}

fn test(kind: &FilterKind) -> Result<Test, Error> {
    let values = |values: &[String], any_case: bool| -> HashSet<String> {
        let value = |v: &String| {
            if any_case {
                v.to_lowercase()
            } else {
                v.clone()
            }
        };
        values.iter().map(value).collect()
    };
    Ok(match kind {
        FilterKind::Literal(list, any_case) => {
            Test::Values(values(list, *any_case), true, *any_case)
        }
        FilterKind::NotLiteral(list, any_case) => {
            Test::Values(values(list, *any_case), false, *any_case)
        }
        FilterKind::NotKey => Test::NotThere,
        FilterKind::Regexp(pattern) => Test::Pattern(compiled(pattern, false)?),
        FilterKind::Wildcard(pattern, any_case) => {
            let parts: Vec<String> = pattern.split('*').map(regex::escape).collect();
            Test::Pattern(compiled(&format!("^{}$", parts.join(".*")), *any_case)?)
        }
    })
}

fn compiled(pattern: &str, any_case: bool) -> Result<Regex, Error> {
    RegexBuilder::new(pattern)
        .case_insensitive(any_case)
        .dot_matches_new_line(true)
        .size_limit(REGEX_BYTES_MAX)
        .build()
        .map_err(|error| {
            invalid(format!(
                "the regular expression {pattern} is invalid: {error}"
            ))
        })
}
