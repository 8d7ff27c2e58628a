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

/// The middle one of some figures, and how far the smallest and the largest are from it, in
/// percent.
pub(crate) fn median(mut figures: Vec<f64>) -> (f64, f64, f64) {
    figures.sort_by(f64::total_cmp);
    let middle = figures.get(figures.len() / 2).copied().unwrap_or(0.0);
    let part = |v: Option<&f64>| {
        v.map_or(0.0, |v| {
            if middle == 0.0 {
                0.0
            } else {
                (v / middle - 1.0) * 100.0
            }
        })
    };
    (middle, part(figures.first()), part(figures.last()))
}
