//! Metric of the expiry of the certificate of TLS.
//!
//! Invariant: the metric is of the certificate in force when it is read. Concurrency: as for the
//! certificate. Failure: a certificate without a known expiry has no metric.

use super::encode_alone;
use crate::tls::Certificate;
use headwater_io::Clock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::gauge::ConstGauge;
use std::sync::Arc;

const NAME: &str = "certificate_expiry_seconds";
const HELP: &str = "Time until the certificate of TLS expires, by the clock; negative after that";

/// Reads the expiry of a certificate.
pub(super) struct CertificateCollector {
    certificate: Arc<Certificate>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for CertificateCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificateCollector")
            .finish_non_exhaustive()
    }
}

impl CertificateCollector {
    pub(super) fn new(
        certificate: &Arc<Certificate>,
        clock: &Arc<dyn Clock>,
    ) -> CertificateCollector {
        CertificateCollector {
            certificate: Arc::clone(certificate),
            clock: Arc::clone(clock),
        }
    }
}

impl Collector for CertificateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Some(validity) = self.certificate.validity() else {
            return Ok(());
        };
        let left = validity.seconds_left(self.clock.now());
        encode_alone(&mut encoder, (NAME, HELP), &ConstGauge::new(left))
    }
}
