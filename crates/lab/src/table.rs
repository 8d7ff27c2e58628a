//! Plain tables: numbers to the right, text to the left.

/// Prints rows under their heads, in Markdown, so that a table can go into the docs as it is.
pub(crate) fn print(heads: &[&str], rows: &[Vec<String>]) {
    println!("| {} |", heads.join(" | "));
    let rule: Vec<&str> = (0..heads.len())
        .map(|i| if i == 0 { "---" } else { "---:" })
        .collect();
    println!("| {} |", rule.join(" | "));
    for row in rows {
        println!("| {} |", row.join(" | "));
    }
}

/// The middle one of some values, and how far the smallest and the largest are from it, in percent.
pub(crate) fn median(mut results: Vec<f64>) -> (f64, f64, f64) {
    results.sort_by(f64::total_cmp);
    let middle = results.get(results.len() / 2).copied().unwrap_or(0.0);
    let part = |v: Option<&f64>| {
        v.map_or(0.0, |v| {
            if middle == 0.0 {
                0.0
            } else {
                (v / middle - 1.0) * 100.0
            }
        })
    };
    (middle, part(results.first()), part(results.last()))
}

/// The mean of some values, and the half width of its interval of 95 %.
pub(crate) fn interval(results: &[f64]) -> (f64, f64) {
    let n = f64::from(u32::try_from(results.len()).unwrap_or(u32::MAX));
    let mean = results.iter().sum::<f64>() / n.max(1.0);
    let squares: f64 = results.iter().map(|figure| (figure - mean).powi(2)).sum();
    let deviation = (squares / (n - 1.0).max(1.0)).sqrt();
    (mean, student(results.len()) * deviation / n.max(1.0).sqrt())
}

/// Quantile of Student's distribution for a 95 % interval over `results` values.
fn student(results: usize) -> f64 {
    const TABLE: [f64; 14] = [
        12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14,
    ];
    let freedom = results.saturating_sub(1).max(1);
    TABLE.get(freedom - 1).copied().unwrap_or(2.1)
}
