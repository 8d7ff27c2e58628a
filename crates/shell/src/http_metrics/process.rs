//! Metrics of the process: processor time, memory, files. The names are the usual ones of
//! Prometheus clients.

use super::encode_alone;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use rustix::time::{ClockId, clock_gettime};

#[derive(Debug)]
pub(super) struct ProcessCollector {
    /// Seconds since 1970 UTC.
    started: f64,
    page_bytes: u64,
}

impl ProcessCollector {
    pub(super) fn new(now: headwater::Timestamp) -> ProcessCollector {
        ProcessCollector {
            started: now.as_nanos() as f64 / 1e9,
            page_bytes: rustix::param::page_size() as u64,
        }
    }
}

/// Virtual and resident memory in pages.
fn memory_pages() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut words = text.split_ascii_whitespace();
    let virtual_pages = words.next()?.parse().ok()?;
    Some((virtual_pages, words.next()?.parse().ok()?))
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let spent = clock_gettime(ClockId::ProcessCPUTime);
        encode_alone(
            &mut encoder,
            (
                "process_cpu_seconds",
                "User and system processor time spent",
            ),
            &ConstCounter::new(spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9),
        )?;
        let mut gauge = |name: &str, help: &str, value: f64| {
            encode_alone(&mut encoder, (name, help), &ConstGauge::new(value))
        };
        gauge(
            "process_start_time_seconds",
            "Start time of the process, since 1970 UTC",
            self.started,
        )?;
        if let Some((all, resident)) = memory_pages() {
            gauge(
                "process_resident_memory_bytes",
                "Resident memory",
                (resident * self.page_bytes) as f64,
            )?;
            gauge(
                "process_virtual_memory_bytes",
                "Virtual memory",
                (all * self.page_bytes) as f64,
            )?;
        }
        if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
            gauge(
                "process_open_fds",
                "Open file descriptors",
                files.count() as f64,
            )?;
        }
        let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        if let Some(most) = most {
            gauge("process_max_fds", "Most open file descriptors", most as f64)?;
        }
        Ok(())
    }
}
