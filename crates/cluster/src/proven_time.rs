//! Time at which certificates of clouds are validated, and by which budgets count days: a machine
//! without a battery-backed clock starts in 1970, and a clock that is set wrong may be decades
//! ahead.
//!
//! Three times are known: the clock, the release of the program, and the time that a cloud has
//! proven. A cloud proves a time by telling it over TLS; it is taken if the cloud's certificate is
//! valid at that time too. Since then, the monotonic clock tells how much later it is.
//!
//! Invariants: certificates are validated at the latest of the three. Where that fails because a
//! certificate has expired, the proven time is tried if the clock is certainly wrong: more than a
//! day away from a time proven since the start, or later than a proven time of an earlier start by
//! more than [`AHEAD_MAX`], which is longer than certificates of public issuers are valid. An
//! expired certificate is thus accepted only where no clock is left that is right. The proven time
//! is written at most once a day. Concurrency: one mutex, held for arithmetic. Failure: a file that
//! cannot be read counts as none, since a clock that is right needs none.

use crate::error::ClusterError;
use crate::other_clock::OtherClock;
use crate::private::{self, VERSION};
use headwater_io::{Clock, SystemClock};
use headwater_shell::{Validity, instant_text};
use headwater_types::Timestamp;
use parking_lot::Mutex;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Date of the newest release in seconds since 1970: a test compares it with CHANGELOG.md. Builds
/// with `SOURCE_DATE_EPOCH` know a later one.
pub(crate) const RELEASED: i64 = 1_793_491_200; // 2026-11-01
/// File of the proven time.
pub(crate) const TIME_FILE: &str = "uplink.time";
const NANOS: i64 = 1_000_000_000;
const DAY: i64 = 86_400 * NANOS;
/// Distance after which the clock counts as wrong, compared with a time that was proven since the
/// start.
const APART_MAX: i64 = DAY;
/// The same for a time of an earlier start, which may have been long ago.
const AHEAD_MAX: i64 = 2 * 366 * DAY;

/// The file of the proven time.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TimeFile {
    version: u32,
    /// Seconds since 1970 UTC.
    proven: i64,
}

/// A proven time, and the moment of the monotonic clock at which it was known.
#[derive(Clone, Copy, Debug)]
struct Proven {
    ns: i64,
    at: Duration,
    /// Proven since the start, not read from the file.
    is_recent: bool,
}

#[derive(Debug, Default)]
struct Known {
    proven: Option<Proven>,
    /// Content of the file, in nanoseconds.
    persisted: Option<i64>,
}

/// The known times.
#[derive(Debug)]
pub(crate) struct ProvenTime {
    clock: Arc<dyn Clock>,
    path: Option<PathBuf>,
    known: Mutex<Known>,
    /// The clock of a cloud that cannot prove it.
    pub(crate) other: OtherClock,
}

/// Release of the program, in nanoseconds since 1970.
fn released() -> i64 {
    let of_build = option_env!("SOURCE_DATE_EPOCH").and_then(|text| text.trim().parse().ok());
    of_build
        .map_or(RELEASED, |seconds: i64| seconds.max(RELEASED))
        .saturating_mul(NANOS)
}

impl ProvenTime {
    /// The clocks of the system, without a proven time.
    pub(crate) fn of_system() -> ProvenTime {
        ProvenTime {
            clock: Arc::new(SystemClock::new()),
            path: None,
            known: Mutex::default(),
            other: OtherClock::default(),
        }
    }

    /// A clock, and the time that is persisted in a directory.
    pub(crate) fn open(clock: Arc<dyn Clock>, dir: &Path) -> ProvenTime {
        let path = dir.join(TIME_FILE);
        let read = private::read::<TimeFile>(&path).unwrap_or_else(|error| {
            tracing::warn!(%error, "sync: cannot read the proven time: the system clock alone decides whether the certificate of a cloud is valid, until a cloud proves the time");
            None
        });
        let persisted = read
            .filter(|file| file.version == VERSION)
            .map(|file| file.proven.saturating_mul(NANOS));
        let at = clock.monotonic();
        let proven = persisted.map(|ns| Proven {
            ns,
            at,
            is_recent: false,
        });
        ProvenTime {
            clock,
            path: Some(path),
            known: Mutex::new(Known { proven, persisted }),
            other: OtherClock::default(),
        }
    }

    /// The proven time and what has passed since, and whether it was proven since the start.
    fn proven_now(&self) -> Option<(i64, bool)> {
        let proven = self.known.lock().proven?;
        let passed = self.clock.monotonic().saturating_sub(proven.at);
        let passed = i64::try_from(passed.as_nanos()).unwrap_or(i64::MAX);
        Some((proven.ns.saturating_add(passed), proven.is_recent))
    }

    /// The proven time, if the clock is certainly wrong by it.
    fn override_of_clock(&self, clock: i64) -> Option<i64> {
        let (proven_now, is_recent) = self.proven_now()?;
        let ahead = clock.saturating_sub(proven_now);
        let is_wrong = match is_recent {
            true => !(-APART_MAX..=APART_MAX).contains(&ahead),
            // Later by any time than the file, or earlier: the file is a lower bound.
            false => !(0..=AHEAD_MAX).contains(&ahead),
        };
        is_wrong.then_some(proven_now)
    }

    /// The latest of the clock, the release, and the proven time.
    fn latest(&self) -> i64 {
        let proven = self.proven_now().map_or(i64::MIN, |(ns, _)| ns);
        self.clock.now().as_nanos().max(released()).max(proven)
    }

    /// The most plausible time: the clock, unless it is certainly wrong.
    pub(crate) fn believed(&self) -> Timestamp {
        let clock = self.clock.now().as_nanos();
        let believed = self.override_of_clock(clock).unwrap_or(clock);
        Timestamp::from_nanos(believed.max(released()))
    }

    /// Time since some fixed moment.
    pub(crate) fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    /// The clock as text.
    pub(crate) fn clock_text(&self) -> String {
        instant_text(self.clock.now())
    }

    /// The known times in words.
    fn told(&self) -> String {
        let clock = self.clock_text();
        match self.proven_now() {
            Some((proven, _)) => {
                let proven = instant_text(Timestamp::from_nanos(proven));
                format!(
                    "the clock here says {clock}, and by what a cloud has proven it is {proven} or later"
                )
            }
            None => format!("the clock here says {clock}, and no cloud has proven a time"),
        }
    }

    /// Takes a time that a cloud has proven.
    fn prove(&self, ns: i64) {
        if ns < released() {
            return;
        }
        let at = self.clock.monotonic();
        self.known.lock().proven = Some(Proven {
            ns,
            at,
            is_recent: true,
        });
    }

    /// Writes the proven time, if the file is off by a day.
    ///
    /// # Errors
    /// `io`.
    pub(crate) fn persist(&self) -> Result<(), ClusterError> {
        let (Some(path), Some((ns, true))) = (&self.path, self.proven_now()) else {
            return Ok(());
        };
        let persisted = self.known.lock().persisted;
        if persisted.is_some_and(|known| ns.abs_diff(known) < DAY.unsigned_abs()) {
            return Ok(());
        }
        let file = TimeFile {
            version: VERSION,
            proven: ns / NANOS,
        };
        private::replace(path, &file)?;
        self.known.lock().persisted = Some(ns);
        Ok(())
    }
}

fn unix(ns: i64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_nanos(ns.max(0).unsigned_abs()))
}

fn is_expired(error: &Error) -> bool {
    matches!(
        error,
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. }
        )
    )
}

fn is_of_time(error: &Error) -> bool {
    let is_early = matches!(
        error,
        Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }
        )
    );
    is_early || is_expired(error)
}

/// A verified certificate of a cloud.
#[derive(Debug)]
struct VerifiedCertificate {
    leaf: CertificateDer<'static>,
    issuers: Vec<CertificateDer<'static>>,
    name: ServerName<'static>,
}

/// Verifies the certificate of a cloud at the known times.
#[derive(Debug)]
pub(crate) struct TimedVerifier {
    by: Arc<WebPkiServerVerifier>,
    time: Arc<ProvenTime>,
    shown: Mutex<Option<VerifiedCertificate>>,
    /// Reason for which a certificate was refused because of a clock.
    refused: Mutex<Option<String>>,
}

impl TimedVerifier {
    pub(crate) fn new(by: Arc<WebPkiServerVerifier>, time: Arc<ProvenTime>) -> TimedVerifier {
        TimedVerifier {
            by,
            time,
            shown: Mutex::new(None),
            refused: Mutex::new(None),
        }
    }

    /// Reason for which the certificate was refused, if that is a clock: its validity, and the
    /// clocks here.
    pub(crate) fn refused(&self) -> Option<String> {
        self.refused.lock().clone()
    }

    /// Time in which the verified certificates are valid.
    pub(crate) fn validity(&self) -> Option<Validity> {
        let shown = self.shown.lock();
        let shown = shown.as_ref()?;
        let all = std::iter::once(&shown.leaf).chain(&shown.issuers);
        Validity::together(all.map(AsRef::as_ref))
    }

    /// Takes a time that the cloud has told over this connection, if its certificate is valid then.
    pub(crate) fn prove(&self, ns: i64) {
        let shown = self.shown.lock();
        let is_valid = shown.as_ref().is_some_and(|shown| {
            let (leaf, issuers) = (&shown.leaf, &shown.issuers);
            let verified = self
                .by
                .verify_server_cert(leaf, issuers, &shown.name, &[], unix(ns));
            verified.is_ok()
        });
        if is_valid {
            self.time.prove(ns);
        }
    }
}

impl ServerCertVerifier for TimedVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        issuers: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let at = |ns: i64| {
            self.by
                .verify_server_cert(leaf, issuers, name, ocsp, unix(ns))
        };
        let latest = self.time.latest();
        let verified = match at(latest) {
            Err(error) if is_expired(&error) => match self.time.override_of_clock(latest) {
                Some(proven) => at(proven).map_err(|_| error),
                None => Err(error),
            },
            other => other,
        };
        let verified = verified.inspect_err(|error| {
            if is_of_time(error) {
                let all = std::iter::once(leaf).chain(issuers);
                let validity = Validity::together(all.map(AsRef::as_ref));
                let validity = validity.map_or_else(String::new, |known| known.to_string());
                *self.refused.lock() = Some(format!("it {validity}; {}", self.time.told()));
            }
        })?;
        *self.shown.lock() = Some(VerifiedCertificate {
            leaf: leaf.clone().into_owned(),
            issuers: issuers.iter().map(|c| c.clone().into_owned()).collect(),
            name: name.to_owned(),
        });
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use headwater_io::ManualClock;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_nanos(seconds * NANOS)
    }

    #[test]
    fn the_release_is_not_before_the_newest_dated_one_of_the_changelog() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../CHANGELOG.md");
        let text = std::fs::read_to_string(path).unwrap();
        let dates = text.lines().filter(|line| line.starts_with("## "));
        let dates = dates.filter_map(|line| line.split_whitespace().last()?.parse().ok());
        let newest: Option<jiff::civil::Date> = dates.max();
        if let Some(newest) = newest {
            let begins = newest.to_zoned(jiff::tz::TimeZone::UTC).unwrap();
            let begins = begins.timestamp().as_second();
            assert_eq!(RELEASED, begins, "set RELEASED to the date of the release");
        }
        let known = jiff::Timestamp::from_second(RELEASED).unwrap().to_string();
        assert_eq!(known, "2026-11-01T00:00:00Z");
    }

    #[test]
    fn a_clock_is_believed_unless_it_is_certainly_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let year = 366 * 86_400;
        let clock = Arc::new(ManualClock::new(at(0)));
        let time = ProvenTime::open(clock.clone(), dir.path());
        assert_eq!(time.believed().as_nanos(), released());
        let now = released() / NANOS + 86_400;
        time.prove(now * NANOS);
        clock.advance(Duration::from_secs(60));
        assert_eq!(time.believed(), at(now + 60));
        // Ten hours off: the clock may be right, and the cloud's wrong.
        clock.set(at(now + 36_000));
        assert_eq!(time.believed(), at(now + 36_000));
        clock.set(at(now + 100 * 86_400));
        assert_eq!(time.believed(), at(now + 60));
        time.persist().unwrap();
        let text = std::fs::read_to_string(dir.path().join(TIME_FILE)).unwrap();
        assert_eq!(
            text,
            format!("{{\n  \"version\": 1,\n  \"proven\": {}\n}}\n", now + 60)
        );
        // Another start: months may have passed, years not.
        let again = ProvenTime::open(clock.clone(), dir.path());
        assert_eq!(again.believed(), at(now + 100 * 86_400));
        clock.set(at(now + 72 * year));
        assert_eq!(again.believed(), at(now + 60));
        clock.set(at(0));
        assert_eq!(again.believed(), at(now + 60));
        assert_eq!(again.latest(), (now + 60) * NANOS);
        // No statement about a time before the release counts.
        again.prove(0);
        assert_eq!(again.latest(), (now + 60) * NANOS);
    }

    #[test]
    fn the_time_is_written_once_a_day() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(TIME_FILE);
        let start = released() / NANOS + 5;
        let clock = Arc::new(ManualClock::new(at(start)));
        let time = ProvenTime::open(clock.clone(), dir.path());
        time.persist().unwrap();
        assert!(!path.exists(), "nothing is proven");
        time.prove(start * NANOS);
        time.persist().unwrap();
        let first = std::fs::read(&path).unwrap();
        clock.advance(Duration::from_secs(80_000));
        time.persist().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), first);
        clock.advance(Duration::from_secs(8_000));
        time.persist().unwrap();
        assert_ne!(std::fs::read(&path).unwrap(), first);
        std::fs::write(&path, "damaged").unwrap();
        let time = ProvenTime::open(clock, dir.path());
        assert_eq!(time.believed(), at(start + 88_000));
    }
}
