//! Metrics in the text format before OpenMetrics, for clients that do not accept the newer format.
//!
//! Invariant: the samples are the same; only the lines about them differ. Source: Prometheus,
//! exposition formats, <https://prometheus.io/docs/instrumenting/exposition_formats/>, version
//! 0.0.4.

/// Converts OpenMetrics text to version 0.0.4: there, the name of a counter always has its
/// `_total`, `info` and units do not exist, and the text has no end marker.
pub(crate) fn plain(openmetrics: &str) -> String {
    let mut out = String::with_capacity(openmetrics.len());
    // Lines about a name, until its type is known.
    let mut help = None;
    for line in openmetrics.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(_), text) => help = Some(text.unwrap_or_default()),
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let (end, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "stateset" => ("", "gauge"),
                    "unknown" => ("", "untyped"),
                    kind => ("", kind),
                };
                if let Some(text) = help.take() {
                    out.extend(["# HELP ", name, end, " ", text, "\n"]);
                }
                out.extend(["# TYPE ", name, end, " ", kind, "\n"]);
            }
            (Some("#"), ..) => {}
            _ => out.extend([line, "\n"]),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_and_infos_have_the_names_of_their_samples() {
        let text = "# HELP a_build What runs.\n# TYPE a_build info\na_build_info{version=\"1\"} 1\n\
                    # HELP a_seconds Time.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total 1.5\n\
                    # TYPE a_b histogram\na_b_sum 1.0\na_b_count 2\na_b_bucket{le=\"+Inf\"} 2\n# EOF\n";
        let expected = "# HELP a_build_info What runs.\n# TYPE a_build_info gauge\na_build_info{version=\"1\"} 1\n\
                        # HELP a_seconds_total Time.\n# TYPE a_seconds_total counter\na_seconds_total 1.5\n\
                        # TYPE a_b histogram\na_b_sum 1.0\na_b_count 2\na_b_bucket{le=\"+Inf\"} 2\n";
        assert_eq!(plain(text), expected);
    }
}
