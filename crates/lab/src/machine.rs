//! What a figure depends on: cores, how fast a sync is here and now, CPU time used.

use std::io::Write;
use std::time::{Duration, Instant};

/// One line about the machine, with the median of 64 appends of 512 bytes each with its sync.
pub(crate) fn describe(dir: &std::path::Path) -> std::io::Result<String> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Ok(format!(
        "{cores} cores, fdatasync median {:?}",
        sync_median(dir)?
    ))
}

fn sync_median(dir: &std::path::Path) -> std::io::Result<Duration> {
    let path = dir.join("sync-probe");
    let mut file = std::fs::File::create(&path)?;
    let mut took = Vec::new();
    for _ in 0..64 {
        file.write_all(&[7; 512])?;
        let start = Instant::now();
        file.sync_data()?;
        took.push(start.elapsed());
    }
    std::fs::remove_file(&path)?;
    took.sort();
    Ok(took.get(32).copied().unwrap_or_default())
}

/// CPU seconds this process has used, over all threads.
pub(crate) fn cpu_seconds() -> f64 {
    // Fields 14 and 15 of the line are ticks of user and system time, 100 a second; the name before them may hold blanks.
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: f64 = after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|t| t.parse::<f64>().ok())
        .sum();
    ticks / 100.0
}
