//! Settings of a dispatcher, and of the nodes that accept its tickets.

use super::setting::{Codec, Setting, within};
use super::values::{parse_count, parse_size, show_size};
use super::{DispatchNode, NODES_MAX, NodeRole, SettingError, Settings};
use crate::access::ticket::PublicKey;
use crate::access::token::{from_hex, hex};
use std::path::PathBuf;

const UNLIMITED: &str = "unlimited";

pub(super) fn url(text: &str) -> Result<String, String> {
    let rest = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    let is_address = rest.is_some_and(|rest| {
        let name = rest.strip_suffix('/').unwrap_or(rest);
        !name.is_empty() && !name.contains(['/', '?', '#', '@', ' '])
    });
    match is_address {
        true => Ok(text.strip_suffix('/').unwrap_or(text).to_owned()),
        false => Err(format!(
            "`{text}`: expected the address of a node, such as https://cloud.example:7373"
        )),
    }
}

/// Parses `URL,URL=URL`: the address for clients follows the equals sign, if it differs.
fn nodes(text: &str) -> Result<Vec<DispatchNode>, String> {
    let parts = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let read = parts.map(|part| {
        let (own, public) = part.split_once('=').unwrap_or((part, part));
        Ok(DispatchNode {
            url: url(own)?,
            public_url: url(public)?,
        })
    });
    let nodes: Vec<DispatchNode> = read.collect::<Result<_, String>>()?;
    for (at, node) in nodes.iter().enumerate() {
        if nodes.iter().take(at).any(|other| other.url == node.url) {
            return Err(format!("`{}` is listed twice", node.url));
        }
    }
    match nodes.len() {
        0..=NODES_MAX => Ok(nodes),
        count => Err(format!(
            "{count} nodes, a dispatcher has at most {NODES_MAX}"
        )),
    }
}

fn show_nodes(nodes: &[DispatchNode]) -> String {
    let shown = nodes.iter().map(|node| match node.url == node.public_url {
        true => node.url.clone(),
        false => format!("{}={}", node.url, node.public_url),
    });
    shown.collect::<Vec<_>>().join(",")
}

fn keys(text: &str) -> Result<Vec<PublicKey>, String> {
    let parts = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    parts
        .map(|part| {
            from_hex(part).ok_or_else(|| format!("`{part}`: expected 64 hexadecimal digits"))
        })
        .collect()
}

pub(super) fn file(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

pub(super) fn shown(path: Option<&PathBuf>) -> String {
    path.map_or_else(String::new, |path| path.display().to_string())
}

/// Checks across settings.
pub(super) fn together(settings: &Settings) -> Result<(), SettingError> {
    let is_dispatcher = settings.sync.role == NodeRole::Dispatcher;
    let fault = match () {
        () if is_dispatcher && settings.dispatch.nodes.is_empty() => {
            "a dispatcher needs dispatch.nodes: the addresses of the nodes that it sends queries to"
        }
        () if is_dispatcher && settings.mqtt.login.broker.is_some() => {
            "a dispatcher stores nothing: mqtt.broker belongs to an edge or a cloud"
        }
        () if is_dispatcher && settings.postgres_addr.is_some() => {
            "a dispatcher has no front end for clients of PostgreSQL: postgres.addr belongs to a node"
        }
        () => return Ok(()),
    };
    Err(SettingError::Together(fault.to_owned()))
}

pub(super) static TABLE: &[Setting] = &[
    Setting {
        key: "dispatch.nodes",
        kind: "URL,…",
        allowed: "comma-separated addresses, each optionally followed by = and its address for clients",
        about: "Nodes that a dispatcher sends queries to, in the order of preference.",
        codec: Codec::Own {
            set: |s, text| nodes(text).map(|nodes| s.dispatch.nodes = nodes),
            show: |s| show_nodes(&s.dispatch.nodes),
        },
    },
    Setting {
        key: "dispatch.token_file",
        kind: "FILE",
        allowed: "a file, or nothing",
        about: "File with the token that a dispatcher sends to its nodes. The token must have the right to read everything.",
        codec: Codec::Own {
            set: |s, text| {
                s.dispatch.token_file = file(text);
                Ok(())
            },
            show: |s| shown(s.dispatch.token_file.as_ref()),
        },
    },
    Setting {
        key: "dispatch.ca",
        kind: "FILE",
        allowed: "a file, or nothing",
        about: "Certificates in PEM by which a dispatcher verifies its nodes. Empty = those that the system trusts.",
        codec: Codec::Own {
            set: |s, text| {
                s.dispatch.ca = file(text);
                Ok(())
            },
            show: |s| shown(s.dispatch.ca.as_ref()),
        },
    },
    Setting {
        key: "dispatch.relays_max",
        kind: "N",
        allowed: "1 to 65536",
        about: "Most answers that a dispatcher relays at once, for browsers and for clients that do not follow redirects.",
        codec: Codec::Own {
            set: |s, text| {
                within(parse_count(text)?, 1..=65_536).map(|n| s.dispatch.relays_max = n)
            },
            show: |s| s.dispatch.relays_max.to_string(),
        },
    },
    Setting {
        key: "dispatch.relay_rate",
        kind: "SIZE",
        allowed: "1KiB and more, or unlimited",
        about: "Most bytes a second of all answers together that a dispatcher relays.",
        codec: Codec::Own {
            set: |s, text| {
                s.dispatch.relay_rate = match text {
                    UNLIMITED => None,
                    _ => Some(within(parse_size(text)?, 1 << 10..=u64::MAX)?),
                };
                Ok(())
            },
            show: |s| {
                let rate = s.dispatch.relay_rate;
                rate.map_or_else(|| UNLIMITED.to_owned(), show_size)
            },
        },
    },
    Setting {
        key: "tickets.keys",
        kind: "KEY,…",
        allowed: "comma-separated keys of 64 hexadecimal digits, or nothing",
        about: "Keys of dispatchers whose tickets this node accepts, besides those of dispatchers that connect with a token that reads everything.",
        codec: Codec::Own {
            set: |s, text| keys(text).map(|keys| s.dispatch.ticket_keys = keys),
            show: |s| {
                let keys = s.dispatch.ticket_keys.iter().map(|key| hex(key));
                keys.collect::<Vec<_>>().join(",")
            },
        },
    },
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn nodes_and_keys_read_back() {
        for text in ["", "http://a:1,https://b.c=https://d.e:5"] {
            assert_eq!(show_nodes(&nodes(text).unwrap()), text);
        }
        let wrong = [
            "a:1",
            "http://",
            "http://a/b",
            "http://a=",
            "http://a,http://a",
        ];
        for text in wrong {
            assert!(nodes(text).is_err(), "{text}");
        }
        assert!(keys(&"0f".repeat(32)).is_ok() && keys("0f").is_err());
    }
}
