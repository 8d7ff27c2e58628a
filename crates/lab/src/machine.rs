//! What a figure depends on: cores, how fast a sync is here and now, CPU time used.

use serde::Serialize;
use std::fmt;
use std::io::Write;
use std::time::{Duration, Instant};

/// What is known of the machine before a run.
#[derive(Serialize)]
pub(crate) struct Machine {
    cores: usize,
    /// The kernel's release.
    kernel: String,
    /// Processes that ran or wanted to, on average over the last minute: other work, if above zero.
    load: f64,
    /// The median of 64 appends of 512 bytes each with its sync.
    sync_median_us: f64,
}

impl Machine {
    /// Looks at the machine; `dir` is where databases will be.
    pub(crate) fn look(dir: &std::path::Path) -> std::io::Result<Machine> {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let load = read("/proc/loadavg");
        let load = load.split(' ').next().and_then(|text| text.parse().ok());
        Ok(Machine {
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load: load.unwrap_or_default(),
            sync_median_us: sync_median(dir)?.as_secs_f64() * 1e6,
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "machine: {} cores, Linux {}, load {:.1}, fdatasync median {:.0} µs",
            self.cores, self.kernel, self.load, self.sync_median_us
        )
    }
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
