//! Certificates by which an edge verifies its cloud, and renewing them.
//!
//! An edge that joined with certificates of its own (`ca`) does not trust those of the system. So
//! that a cloud can change its certificate, it tells its edges the next one before it uses it; from
//! then on the edge trusts both. Invariants: certificates are taken over TLS only, from a cloud
//! whose certificate was verified; certificates are added, and beyond [`MOST`] those that expire
//! first are left out. Concurrency: plain data. Failure: a text that has no certificates, or is too
//! long, changes nothing.

use headwater_shell::{Validity, fingerprint};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Longest text of certificates that is sent or taken, in bytes.
pub(crate) const TEXT_MAX: usize = 16 << 10;
/// Most certificates of an edge.
const MOST: usize = 16;
/// Characters of a line of PEM.
const LINE: usize = 64;

/// The certificates of a text in PEM; empty where one of them cannot be read.
fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    let read = CertificateDer::pem_slice_iter(pem.as_bytes());
    read.collect::<Result<Vec<_>, _>>().unwrap_or_default()
}

/// True for a text with certificates that edges take.
#[must_use]
pub fn is_announceable(pem: &str) -> bool {
    let known = certificates(pem);
    pem.len() <= TEXT_MAX && !known.is_empty() && known.len() < MOST
}

/// SHA-256 of each certificate of a text in PEM, as hexadecimal digits.
pub(crate) fn fingerprints(pem: &str) -> Vec<String> {
    let all = certificates(pem);
    all.iter().map(|der| fingerprint(der)).collect()
}

/// A certificate as PEM.
fn text(certificate: &[u8]) -> String {
    let encoded = data_encoding::BASE64.encode(certificate);
    let mut out = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, behind) = rest.split_at(LINE.min(rest.len()));
        out.extend([line, "\n"]);
        rest = behind;
    }
    out + "-----END CERTIFICATE-----\n"
}

/// Known certificates with further ones; `None` where nothing is new.
pub(crate) fn extended(known: &str, more: &str) -> Option<String> {
    if !is_announceable(more) {
        return None;
    }
    let mut all = certificates(known);
    let before = all.len();
    for certificate in certificates(more) {
        if !all.contains(&certificate) {
            all.push(certificate);
        }
    }
    if all.len() == before {
        return None;
    }
    if all.len() > MOST {
        let ends = |der: &CertificateDer<'_>| Validity::of(der).map(|found| found.not_after);
        all.sort_by_key(|der| std::cmp::Reverse(ends(der)));
        all.truncate(MOST);
    }
    let joined: String = all.iter().map(|der| text(der)).collect();
    // Where those that are left are the known ones, nothing is new either.
    (certificates(known) != all).then_some(joined)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    fn certificate(until: i32) -> String {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().pem()
    }

    #[test]
    fn a_further_certificate_is_added_once() {
        let (first, second) = (certificate(2030), certificate(2031));
        let both = extended(&first, &second).unwrap();
        assert_eq!(certificates(&both).len(), 2);
        assert_eq!(certificates(&both)[0], certificates(&first)[0]);
        let all = [&first, &second].map(|pem| fingerprints(pem).remove(0));
        assert_eq!(fingerprints(&both), all);
        for known in [&first, &second, &both] {
            assert_eq!(extended(&both, known), None);
        }
        for none in ["", "no certificate", &"x".repeat(TEXT_MAX + 1)] {
            assert_eq!(extended(&first, none), None);
        }
    }

    #[test]
    fn of_too_many_those_that_end_first_are_left_out() {
        let mut known = certificate(2030);
        for year in 2031..2050 {
            known = extended(&known, &certificate(year)).unwrap();
        }
        let ends: Vec<_> = certificates(&known)
            .iter()
            .map(|der| Validity::of(der).unwrap().not_after)
            .collect();
        let first = Validity::of(&certificates(&certificate(2034))[0]).unwrap();
        assert_eq!(ends.len(), MOST);
        assert_eq!(ends.iter().min(), Some(&first.not_after));
        // One that ends before all of them is not stored, each time it is told.
        assert_eq!(extended(&known, &certificate(2029)), None);
    }
}
