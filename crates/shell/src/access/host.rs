//! Host names under which a server answers when it does not require a token.
//!
//! Purpose: a page of another origin, in a browser on the same machine, must not reach a server on
//! loopback: neither under a name of its own that resolves to loopback (DNS rebinding), nor by a
//! request across origins. So without tokens the `Host` header must name this machine or one of the
//! configured names, and so must `Origin` where a browser sends it.
//!
//! Source: "Protecting Browsers from DNS Rebinding Attacks" (Jackson et al., CCS 2007), whose
//! server-side defence this is.

use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, Version};
use std::net::IpAddr;

/// Names under which requests without a token are admitted.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    /// Names of the setting `hosts`, in lower case.
    configured: Vec<String>,
    /// All names are admitted: `allow_open` on an address that others reach, without configured
    /// names.
    any: bool,
}

impl Names {
    pub(crate) fn new(given: &[String], any: bool) -> Names {
        Names {
            configured: given.iter().map(|name| name.to_ascii_lowercase()).collect(),
            any: any && given.is_empty(),
        }
    }

    fn contains(&self, host: &str) -> bool {
        if self.any {
            return true;
        }
        let host = host.to_ascii_lowercase();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let loopback = bare == "localhost" || bare.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        loopback || self.configured.iter().any(|name| *name == bare)
    }

    /// Admits a request under one of the names, unless it was sent by a page of a name that is not
    /// allowed.
    pub(crate) fn admit(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        is_welcome: bool,
    ) -> Result<(), Stranger> {
        // HTTP/2 has the name in the address.
        let authority = match uri.authority() {
            Some(authority) => authority.as_str(),
            None => headers
                .get(HOST)
                .and_then(|host| host.to_str().ok())
                .ok_or(Stranger::Host)?,
        };
        if !self.contains(name_of(authority)) {
            return Err(Stranger::Host);
        }
        let Some(origin) = headers.get(ORIGIN).filter(|_| !is_welcome) else {
            return Ok(());
        };
        // The port counts too: another program of this machine may serve pages under another port.
        let from = origin
            .to_str()
            .ok()
            .and_then(|origin| origin.split_once("://"));
        match from {
            Some((_, from)) if from.eq_ignore_ascii_case(authority) => Ok(()),
            _ => Err(Stranger::Origin),
        }
    }
}

/// True when a request names its host as HTTP requires: exactly once in HTTP/1.1, at most once in
/// other versions, and as a name with or without a port. Programs disagree about requests with two
/// names.
pub(crate) fn is_named_once(version: Version, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => version != Version::HTTP_11,
        (Some(host), None) => {
            let bytes = host.as_bytes();
            !bytes.contains(&b'@') && Authority::try_from(bytes).is_ok()
        }
        (Some(_), Some(_)) => false,
    }
}

/// Header that caused a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stranger {
    Host,
    Origin,
}

/// `name:port` or `[address]:port` without the port.
fn name_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn check(names: &Names, host: Option<&str>, origin: Option<&str>) -> Result<(), Stranger> {
        let mut headers = HeaderMap::new();
        if let Some(host) = host {
            headers.insert(HOST, host.parse().unwrap());
        }
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        names.admit(&Uri::from_static("/write"), &headers, false)
    }

    #[test]
    fn only_this_machine_and_given_names_come_in() {
        let names = Names::new(&["Gateway.local".to_owned()], false);
        for host in [
            "localhost",
            "LOCALHOST:7373",
            "127.0.0.1:7373",
            "127.8.0.1",
            "[::1]:7373",
            "[::1]",
            "gateway.LOCAL:80",
        ] {
            assert_eq!(check(&names, Some(host), None), Ok(()), "{host}");
        }
        for host in [
            "example.org",
            "localhost.example.org:7373",
            "127.0.0.1.example.org",
            "192.168.0.7",
            "",
            ":80",
        ] {
            assert_eq!(
                check(&names, Some(host), None),
                Err(Stranger::Host),
                "{host}"
            );
        }
        assert_eq!(check(&names, None, None), Err(Stranger::Host));
    }

    #[test]
    fn pages_of_other_names_are_kept_out() {
        let names = Names::new(&[], false);
        let host = Some("127.0.0.1:7373");
        assert_eq!(check(&names, host, Some("http://127.0.0.1:7373")), Ok(()));
        for origin in [
            "http://example.org",
            "null",
            "http://localhost.example.org",
            "127.0.0.1",
            "http://127.0.0.1:3000",
        ] {
            assert_eq!(
                check(&names, host, Some(origin)),
                Err(Stranger::Origin),
                "{origin}"
            );
        }
        let any = Names::new(&[], true);
        assert_eq!(check(&any, Some("example.org"), None), Ok(()));
        assert_eq!(
            check(&any, Some("example.org"), Some("http://elsewhere.org")),
            Err(Stranger::Origin)
        );
    }

    #[test]
    fn a_request_names_its_host_once() {
        let named = |version, hosts: &[&str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(HOST, host.parse().unwrap());
            }
            is_named_once(version, &headers)
        };
        for host in ["localhost", "localhost:80", "[::1]:7373", "a.example"] {
            assert!(named(Version::HTTP_11, &[host]), "{host}");
        }
        for host in ["", "a b", "a/b", "user@a", "a:b:c", "a, b"] {
            assert!(!named(Version::HTTP_11, &[host]), "{host}");
        }
        assert!(!named(Version::HTTP_11, &[]));
        for version in [Version::HTTP_10, Version::HTTP_2] {
            assert!(named(version, &[]) && named(version, &["a"]));
            assert!(!named(version, &["a", "a"]));
        }
        assert!(!named(Version::HTTP_11, &["a", "a"]));
    }

    #[test]
    fn a_name_in_the_address_counts_before_the_header() {
        let names = Names::new(&[], false);
        let mut headers = HeaderMap::new();
        headers.insert(HOST, "localhost".parse().unwrap());
        let uri = Uri::from_static("http://example.org/write");
        assert_eq!(names.admit(&uri, &headers, false), Err(Stranger::Host));
    }
}
