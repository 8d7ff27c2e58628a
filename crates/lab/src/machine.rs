//! Properties of the machine that results depend on: cores, how fast a sync is here and now, CPU
//! time used.

use serde::Serialize;
use std::fmt;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// State of the machine before a run.
#[derive(Serialize)]
pub(crate) struct Machine {
    cores: usize,
    /// The kernel's release.
    kernel: String,
    /// Processes that ran or were ready to, on average over the last minute: other work, if above
    /// zero.
    load: f64,
    /// The median of 64 appends of 512 bytes each with its sync.
    sync_median_us: f64,
}

impl Machine {
    /// Inspects the machine; databases will be in `dir`.
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

/// CPU seconds this process has used, over all threads, ended ones too.
pub(crate) fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Measures syncs beside the rivals: appends of 4 KiB to a file that was filled before, each with
/// its `fdatasync`.
pub(crate) struct SyncProbe {
    file: std::fs::File,
    path: std::path::PathBuf,
    at: u64,
    took: Vec<Duration>,
}

/// Bytes of the probe's file; at the end it is written from the start again.
const PROBE_BYTES: u64 = 4 << 20;

impl SyncProbe {
    pub(crate) fn new(path: std::path::PathBuf) -> std::io::Result<SyncProbe> {
        let mut file = std::fs::File::create(&path)?;
        file.write_all(&vec![0; PROBE_BYTES as usize])?;
        file.sync_all()?;
        Ok(SyncProbe {
            file,
            path,
            at: 0,
            took: Vec::new(),
        })
    }

    /// Takes some more samples: between rounds, to show the conditions of the rivals.
    pub(crate) fn sample(&mut self, count: usize) -> std::io::Result<()> {
        for _ in 0..count {
            self.file.write_all_at(&[7; 4096], self.at)?;
            self.at = (self.at + 4096) % PROBE_BYTES;
            let start = Instant::now();
            self.file.sync_data()?;
            self.took.push(start.elapsed());
        }
        Ok(())
    }

    /// The median so far, in microseconds.
    pub(crate) fn median_us(&self) -> f64 {
        let samples = self.took.iter().map(|t| t.as_secs_f64() * 1e6).collect();
        crate::table::median(samples).0
    }
}

impl Drop for SyncProbe {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            eprintln!("lab: {}: {error}", self.path.display());
        }
    }
}

/// The most memory that was resident in this process at any time, in bytes (`VmHWM`); 0 where the
/// kernel does not report it.
pub(crate) fn peak_resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.trim().strip_suffix("kB"));
    kib.and_then(|k| k.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}
