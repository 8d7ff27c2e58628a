//! What a cloud asks of its bucket, and what lies there, as it was a moment ago.

use super::nodes::count;
use crate::bucket::Bucket;
use headwater_bucket::{DayCounts, KindCounts};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// The newest that is known.
#[derive(Debug, Default)]
pub(crate) struct BucketFigures {
    newest: Mutex<Option<Figures>>,
}

#[derive(Clone, Copy, Debug)]
struct Figures {
    asked: DayCounts,
    is_held: bool,
    epoch: u64,
    packs: usize,
    bytes: u64,
}

impl BucketFigures {
    /// Looks at a bucket.
    pub(crate) fn fetched(&self, bucket: &Bucket) {
        let holder = bucket.holder.lock();
        let head = holder.head();
        let packs = head.map(|head| head.packs.as_slice()).unwrap_or_default();
        *self.newest.lock() = Some(Figures {
            asked: bucket.counts(),
            is_held: holder.is_holding(bucket.now()),
            epoch: head.map_or(0, |head| head.epoch),
            packs: packs.len(),
            bytes: packs.iter().map(|pack| pack.bytes).sum(),
        });
    }
}

/// A name, help, and how to read the figure.
type Figure<T> = (&'static str, &'static str, fn(&T) -> u64);

const OF_KINDS: [Figure<KindCounts>; 3] = [
    (
        "bucket_requests",
        "Requests to the bucket since the start, by kind",
        |kind| kind.requests,
    ),
    (
        "bucket_failures",
        "Requests to the bucket without an answer, by kind",
        |kind| kind.failures,
    ),
    (
        "bucket_bytes",
        "Bytes of objects to and from the bucket, by kind",
        |kind| kind.bytes,
    ),
];

const OF_BUCKET: [Figure<Figures>; 4] = [
    (
        "bucket_group_held",
        "1 while this node holds its group of copies",
        |figures| u64::from(figures.is_held),
    ),
    (
        "bucket_epoch",
        "The epoch of the group of copies",
        |figures| figures.epoch,
    ),
    (
        "bucket_packs",
        "Packs in the bucket that count",
        |figures| u64::try_from(figures.packs).unwrap_or(u64::MAX),
    ),
    (
        "bucket_packs_bytes",
        "Bytes of the packs in the bucket that count",
        |figures| figures.bytes,
    ),
];

impl Collector for BucketFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Some(figures) = *self.newest.lock() else {
            return Ok(());
        };
        let asked = figures.asked;
        let kinds = [
            ("get", asked.get),
            ("put", asked.put),
            ("list", asked.list),
            ("delete", asked.delete),
        ];
        for (name, help, read) in OF_KINDS {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (kind, counts) in &kinds {
                let labels = [("kind", *kind)];
                ConstCounter::new(read(counts)).encode(metric.encode_family(&labels)?)?;
            }
        }
        for (name, help, read) in OF_BUCKET {
            let metric = ConstGauge::new(count(read(&figures)));
            let kind = EncodeMetric::metric_type(&metric);
            metric.encode(encoder.encode_descriptor(name, help, None, kind)?)?;
        }
        Ok(())
    }
}
