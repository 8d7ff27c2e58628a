//! Metrics of the age of a received list of rights.
//!
//! Invariant: a node without a list has no such metric. Concurrency and failure: as for the guard.

use super::encode_alone;
use crate::access::guard::Guard;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::gauge::ConstGauge;
use std::sync::Arc;

/// Reads the age of the list of a guard.
#[derive(Debug)]
pub(super) struct RightsCollector(Arc<Guard>);

impl RightsCollector {
    pub(super) fn new(guard: &Arc<Guard>) -> RightsCollector {
        RightsCollector(Arc::clone(guard))
    }
}

impl Collector for RightsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Some(age) = self.0.received_age() else {
            return Ok(());
        };
        encode_alone(
            &mut encoder,
            (
                "rights_list_age_seconds",
                "Time since the sender of the received list of rights was known to have no newer one",
            ),
            &ConstGauge::new(age.as_secs_f64()),
        )?;
        encode_alone(
            &mut encoder,
            (
                "rights_list_stale",
                "1 while that time is above rights.max_age",
            ),
            &ConstGauge::new(f64::from(u8::from(self.0.is_stale()))),
        )
    }
}
