//! Metrics without names of other nodes, for readers that may not know them.
//!
//! Invariants: of samples with the label of a node, one stays for each metric and its other labels:
//! the sum, and the earliest where the metric is an instant. Other lines are unchanged. A line that
//! cannot be parsed is left out if it has such a label.

use std::collections::BTreeMap;

/// Labels with names of nodes.
const NAMES: [&str; 2] = ["edge", "node"];
/// End of the names of metrics that are instants.
const INSTANT: &str = "_timestamp_seconds";

/// Sums, by metric and other labels.
type Sums<'a> = BTreeMap<(&'a str, String), f64>;

/// A sample, apart from the value of a label with a name.
struct Sample<'a> {
    metric: &'a str,
    /// The other labels, as written.
    labels: Vec<&'a str>,
    is_named: bool,
    value: &'a str,
}

/// Length of a quoted text at the beginning of a text, quotes included.
fn quoted(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

impl<'a> Sample<'a> {
    /// Parses a line with labels.
    fn parse(line: &'a str) -> Option<Sample<'a>> {
        let (metric, mut rest) = line.split_once('{')?;
        let mut sample = Sample {
            metric,
            labels: Vec::new(),
            is_named: false,
            value: "",
        };
        while !rest.starts_with('}') {
            let (name, value) = rest.split_once('=')?;
            let end = name.len() + 1 + quoted(value)?;
            let (label, behind) = rest.split_at_checked(end)?;
            match NAMES.contains(&name) {
                true => sample.is_named = true,
                false => sample.labels.push(label),
            }
            rest = behind.strip_prefix(',').unwrap_or(behind);
        }
        sample.value = rest.strip_prefix('}')?.trim();
        Some(sample)
    }
}

fn has_name(line: &str) -> bool {
    NAMES.iter().any(|name| {
        let (first, further) = (format!("{{{name}=\""), format!(",{name}=\""));
        line.contains(&first) || line.contains(&further)
    })
}

/// The same text with one sample in place of those that differ in the names of nodes only.
pub(crate) fn nameless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // Sums of one metric, which is not interrupted by others, by the other labels.
    let mut sums = Sums::new();
    for line in text.lines() {
        if line.starts_with('#') || !has_name(line) {
            push_sums(&mut out, &mut sums);
            out.extend([line, "\n"]);
            continue;
        }
        match Sample::parse(line) {
            Some(sample) if sample.is_named => add(&mut sums, &sample),
            Some(_) => out.extend([line, "\n"]),
            None => {}
        }
    }
    push_sums(&mut out, &mut sums);
    out
}

/// Adds a sample to the sum, or the earliest instant, of its metric and other labels. A value that
/// is no number is left out.
fn add<'a>(sums: &mut Sums<'a>, sample: &Sample<'a>) {
    let Ok(value) = sample.value.parse::<f64>() else {
        return;
    };
    let is_instant = sample.metric.ends_with(INSTANT);
    let sum = sums.entry((sample.metric, sample.labels.join(",")));
    let sum = sum.or_insert(match is_instant {
        true => f64::INFINITY,
        false => 0.0,
    });
    match is_instant {
        true => *sum = sum.min(value),
        false => *sum += value,
    }
}

fn push_sums(out: &mut String, sums: &mut Sums<'_>) {
    for ((metric, labels), sum) in std::mem::take(sums) {
        let value = format!("{sum:?}");
        match labels.is_empty() {
            true => out.extend([metric, " ", &value, "\n"]),
            false => out.extend([metric, "{", &labels, "} ", &value, "\n"]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_that_differ_in_names_only_are_one() {
        let text = "# TYPE a gauge\na{edge=\"p-7\"} 1.5\na{edge=\"p\\\"8,node=}\"} 2\n\
                    # TYPE a_timestamp_seconds gauge\n\
                    a_timestamp_seconds{edge=\"p-7\"} 30.0\na_timestamp_seconds{edge=\"p-8\"} 20.0\n\
                    # TYPE b gauge\nb{node=\"http://x\",kind=\"k\"} 1\nb{kind=\"k\",node=\"http://y\"} 1\n\
                    b{kind=\"l\",node=\"http://y\"} 4\n# TYPE c counter\nc_total{route=\"/x{edge=\\\"\"} 7\n\
                    c_total{code=\"edge\"} 3\nd 5\n# EOF\n";
        let expected = "# TYPE a gauge\na 3.5\n# TYPE a_timestamp_seconds gauge\n\
                        a_timestamp_seconds 20.0\n# TYPE b gauge\nb{kind=\"k\"} 2.0\nb{kind=\"l\"} 4.0\n\
                        # TYPE c counter\nc_total{route=\"/x{edge=\\\"\"} 7\nc_total{code=\"edge\"} 3\nd 5\n# EOF\n";
        assert_eq!(nameless(text), expected);
    }
}
