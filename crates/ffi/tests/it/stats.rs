//! What is made from the table of stats: the struct of Go, and the page of metrics.

use headwater::{MetricName, STATS, Stat, StatKind, StatUnit};
use std::fmt::Write as _;
use std::path::Path;

/// The name of a field in Go.
fn field(name: &str) -> String {
    match name {
        "wa_events" => return "WriteAmplification".to_owned(),
        "wa_bytes" => return "WriteAmplificationBytes".to_owned(),
        _ => {}
    }
    let words = name.split('_').map(|word| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    });
    words.collect()
}

fn since(stat: &Stat) -> &'static str {
    match stat.kind {
        StatKind::SinceOpening => ", since opening",
        StatKind::Gauge | StatKind::Total => "",
    }
}

fn go() -> String {
    let mut out = String::from(
        "package headwater\n\nimport \"time\"\n\n// Made from the table of stats of the engine; see crates/ffi/tests/it/stats.rs.\n\n// Stats are counters and sizes of a database: sums since it was made, unless they say \"since opening\".\ntype Stats struct {\n",
    );
    for stat in &STATS {
        let (kind, suffix) = match stat.unit {
            StatUnit::Count | StatUnit::Bytes => ("uint64", ""),
            StatUnit::Ratio => ("float64", ""),
            StatUnit::Seconds => ("time.Duration", "_ns"),
        };
        let (name, key) = (field(stat.name), stat.name);
        let help = format!("{}{}", stat.help, since(stat));
        let _ = writeln!(out, "\t// {name}: {help}.");
        let _ = writeln!(out, "\t{name} {kind} `json:\"{key}{suffix}\"`");
    }
    out.push_str("}\n");
    out
}

/// The rows of the page, between its two marks.
fn page() -> String {
    let mut out = String::from("| Stat | Metric | Meaning |\n| --- | --- | --- |\n");
    for stat in &STATS {
        let is_counter = stat.kind != StatKind::Gauge;
        let total = if is_counter { "_total" } else { "" };
        let metric = match stat.metric {
            MetricName::Plain(name) => format!("`headwater_{name}{total}`"),
            MetricName::Labelled(family, label, value) => {
                format!("`headwater_{family}{total}{{{label}=\"{value}\"}}`")
            }
        };
        let (name, help, since) = (stat.name, stat.help, since(stat));
        let _ = writeln!(out, "| `{name}` | {metric} | {help}{since} |");
    }
    out
}

/// Compares a part of a file with what the table makes of it; with `HEADWATER_WRITE_GOLDEN=1`
/// writes it.
fn compare(path: &str, wanted: &str, whole: impl Fn(&str) -> Option<String>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path);
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    let text = whole(&there).expect("the page has its marks");
    if std::env::var_os("HEADWATER_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let now = std::fs::read_to_string(&path).unwrap();
    assert!(
        now == text && now.contains(wanted),
        "{} is not what the table of stats says: run this test with HEADWATER_WRITE_GOLDEN=1",
        path.display()
    );
}

#[test]
fn the_struct_of_go_has_every_stat() {
    let wanted = go();
    compare("bindings/go/stats.go", &wanted, |_| Some(wanted.clone()));
}

#[test]
fn the_page_of_metrics_has_every_stat() {
    const BEGIN: &str = "<!-- stats -->\n";
    const END: &str = "<!-- end of stats -->";
    let wanted = page();
    compare("docs/operate/metrics.md", &wanted, |text| {
        let (before, rest) = text.split_once(BEGIN)?;
        let (_, after) = rest.split_once(END)?;
        Some(format!("{before}{BEGIN}{wanted}{END}{after}"))
    });
}
