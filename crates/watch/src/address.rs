//! Addresses that a web hook may use. Addresses that only this machine or its own network can reach
//! are refused, so that a watch cannot reach a host that its owner cannot reach directly.
//!
//! Invariant: an address that embeds another one (IPv4 in IPv6) is judged by the embedded address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is public, that is, reachable from the internet.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let reserved = a == 0
        || a >= 224
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (b == 18 || b == 19));
    !(reserved
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, _, _, _, _, g, h] = address.segments();
    let embedded = |high: u16, low: u16| {
        let ([w, x], [y, z]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(w, x, y, z))
    };
    if let Some(mapped) = address.to_ipv4_mapped() {
        return is_public_v4(mapped);
    }
    // NAT64 translates to the embedded IPv4 address; network-specific NAT64 prefixes are unknown.
    if a == 0x64 && b == 0xff9b {
        return address.segments().get(2..6) == Some(&[0, 0, 0, 0]) && embedded(g, h);
    }
    // Global unicast addresses are in 2000::/3; Teredo, 6to4 and documentation are excluded.
    (a & 0xe000) == 0x2000
        && a != 0x2002
        && !(a == 0x2001 && (b < 0x0200 || b == 0x0db8))
        && !(a == 0x3fff && b < 0x1000)
}

/// Whether a list of hosts contains a host: by its name, or by `*.name` for all subdomains.
#[must_use]
pub fn is_allowed(allowed: &[String], host: &str) -> bool {
    let host = host.trim_end_matches('.').to_lowercase();
    allowed.iter().any(|pattern| {
        let pattern = pattern.to_lowercase();
        match pattern.strip_prefix("*.") {
            None => pattern == host,
            Some(of) => host
                .strip_suffix(of)
                .is_some_and(|before| before.len() > 1 && before.ends_with('.')),
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn only_addresses_of_the_internet_are_public() {
        for private in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "192.0.0.8",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "192.0.2.1",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::808:808",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "3fff:1::",
            "::127.0.0.1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
        for public in [
            "8.8.8.8",
            "172.32.0.1",
            "192.169.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2a00:1450::1",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }

    #[test]
    fn hosts_are_allowed_by_name_or_below_one() {
        let allowed = ["hooks.example".to_owned(), "*.Plant.example".to_owned()];
        for good in [
            "hooks.example",
            "HOOKS.example.",
            "a.plant.example",
            "a.b.plant.example",
        ] {
            assert!(is_allowed(&allowed, good), "{good}");
        }
        for bad in [
            "a.hooks.example",
            "plant.example",
            ".plant.example",
            "xplant.example",
            "",
        ] {
            assert!(!is_allowed(&allowed, bad), "{bad}");
        }
        assert!(!is_allowed(&[], "hooks.example"));
    }
}
