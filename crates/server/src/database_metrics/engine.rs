//! The stats of the engine, at most some seconds old, from the table [`STATS`].

use headwater::{MetricName, STATS, Stat, StatKind, StatValue, Stats};
use headwater_shell::encode_alone;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Stats younger than this are not collected again.
const FRESH: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(crate) struct EngineMetrics {
    newest: Mutex<Option<(Instant, Stats)>>,
    fetching: AtomicBool,
}

impl EngineMetrics {
    /// True when the caller should fetch the stats and then call [`EngineMetrics::set_newest`]: the
    /// stats are old, and no other caller fetches them.
    pub(crate) fn wants_fetching(&self) -> bool {
        let fresh = self
            .newest
            .lock()
            .as_ref()
            .is_some_and(|(at, _)| at.elapsed() < FRESH);
        !fresh && !self.fetching.swap(true, Ordering::AcqRel)
    }

    /// Stores the fetched stats; `None` = there are none, because of an error or a panic.
    pub(crate) fn set_newest(&self, stats: Option<Stats>) {
        if let Some(stats) = stats {
            *self.newest.lock() = Some((Instant::now(), stats));
        }
        self.fetching.store(false, Ordering::Release);
    }
}

impl Collector for EngineMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Some((at, stats)) = self.newest.lock().clone() else {
            return Ok(());
        };
        for stat in &STATS {
            if let MetricName::Plain(name) = stat.metric {
                let value = (stat.value)(&stats);
                match (stat.kind, value) {
                    (StatKind::Total | StatKind::SinceOpening, StatValue::Count(count)) => {
                        let metric = ConstCounter::new(count);
                        encode_alone(&mut encoder, (name, stat.help), &metric)?;
                    }
                    _ => {
                        let metric = ConstGauge::new(value.as_f64());
                        encode_alone(&mut encoder, (name, stat.help), &metric)?;
                    }
                }
            }
        }
        for (family, help) in Stat::FAMILIES {
            let mut metric = encoder.encode_descriptor(family, help, None, MetricType::Counter)?;
            for stat in &STATS {
                if let (MetricName::Labelled(of, label, value), StatValue::Count(count)) =
                    (stat.metric, (stat.value)(&stats))
                    && of == family
                {
                    let labels = [(label, value)];
                    ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
                }
            }
        }
        encode_alone(
            &mut encoder,
            ("figures_age_seconds", "Age of the engine's stats"),
            &ConstGauge::new(at.elapsed().as_secs_f64()),
        )
    }
}
