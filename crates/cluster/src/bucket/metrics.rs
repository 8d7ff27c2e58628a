//! Metrics of the bucket of a cloud: requests to it, and its contents.

use super::Bucket;
use headwater_bucket::{DayCounts, KindCounts};
use headwater_engine::StatValue;
use headwater_shell::encode_alone;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// The newest observation.
#[derive(Debug, Default)]
pub struct BucketMetrics {
    newest: Mutex<Option<Observed>>,
}

#[derive(Clone, Copy, Debug)]
struct Observed {
    requests: DayCounts,
    has_lease: bool,
    epoch: u64,
    packs: usize,
    bytes: u64,
}

impl BucketMetrics {
    /// Observes a bucket.
    pub fn observe(&self, bucket: &Bucket) {
        let holder = bucket.holder.lock();
        let head = holder.head();
        let packs = head.map(|head| head.packs.as_slice()).unwrap_or_default();
        *self.newest.lock() = Some(Observed {
            requests: bucket.counts(),
            has_lease: holder.has_lease(bucket.now()),
            epoch: head.map_or(0, |head| head.epoch),
            packs: packs.len(),
            bytes: packs.iter().map(|pack| pack.bytes).sum(),
        });
    }
}

/// A name, help, and the getter.
type Entry<T> = (&'static str, &'static str, fn(&T) -> u64);

const OF_KINDS: [Entry<KindCounts>; 3] = [
    (
        "bucket_requests",
        "Requests to the bucket since the start, by kind",
        |kind| kind.requests,
    ),
    (
        "bucket_failures",
        "Requests to the bucket that got no answer, by kind",
        |kind| kind.failures,
    ),
    (
        "bucket_bytes",
        "Bytes of objects to and from the bucket, by kind",
        |kind| kind.bytes,
    ),
];

const OF_BUCKET: [Entry<Observed>; 4] = [
    (
        "bucket_group_held",
        "1 while this node holds the lease of its group of copies",
        |seen| u64::from(seen.has_lease),
    ),
    ("bucket_epoch", "The epoch of the group of copies", |seen| {
        seen.epoch
    }),
    ("bucket_packs", "Live packs in the bucket", |seen| {
        u64::try_from(seen.packs).unwrap_or(u64::MAX)
    }),
    (
        "bucket_packs_bytes",
        "Bytes of the live packs in the bucket",
        |seen| seen.bytes,
    ),
];

impl Collector for BucketMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Some(seen) = *self.newest.lock() else {
            return Ok(());
        };
        let requests = seen.requests;
        let kinds = [
            ("get", requests.get),
            ("put", requests.put),
            ("list", requests.list),
            ("delete", requests.delete),
        ];
        for (name, help, read) in OF_KINDS {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (kind, counts) in &kinds {
                let labels = [("kind", *kind)];
                ConstCounter::new(read(counts)).encode(metric.encode_family(&labels)?)?;
            }
        }
        for (name, help, read) in OF_BUCKET {
            let metric = ConstGauge::new(StatValue::Count(read(&seen)).as_f64());
            encode_alone(&mut encoder, (name, help), &metric)?;
        }
        Ok(())
    }
}
