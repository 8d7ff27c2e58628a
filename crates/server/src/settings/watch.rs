//! Settings of watches: allowed targets of web hooks.

use super::setting::{Codec, SWITCH, Setting};
use super::values::parse_switch;
use std::path::PathBuf;

/// Allowed targets of events.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    /// Hosts that web hooks may be sent to: names, or `*.name` for all subdomains. Empty = no
    /// hooks.
    pub hooks: Vec<String>,
    /// True when hook addresses may be reachable from this machine or its network only.
    pub hooks_private: bool,
    /// File with the key that signs web hooks.
    pub hook_key_file: Option<PathBuf>,
    /// Prefixes of topics that events may be published to. Empty = no publishing.
    pub topics: Vec<String>,
}

pub(super) const TABLE: &[Setting] = &[
    Setting {
        key: "watch.hooks",
        kind: "HOST,…",
        allowed: "host names, or *.name for all below one, separated by commas",
        about: "Hosts that web hooks of watches may go to; none unless named. Not in programs built without `sql`.",
        codec: Codec::Own {
            set: |s, text| {
                let hosts = text
                    .split(',')
                    .map(str::trim)
                    .filter(|host| !host.is_empty());
                s.watch.hooks = hosts.map(str::to_owned).collect();
                match s
                    .watch
                    .hooks
                    .iter()
                    .find(|host| host.contains(['/', '@', ' ']))
                {
                    Some(host) => Err(format!("`{host}` is not a host name")),
                    None => Ok(()),
                }
            },
            show: |s| s.watch.hooks.join(","),
        },
    },
    Setting {
        key: "watch.hooks_private",
        kind: SWITCH,
        allowed: "true or false",
        about: "Allow web hooks to loopback and private addresses. Users who may create watches can then reach the hosts of `watch.hooks` there.",
        codec: Codec::Own {
            set: |s, text| parse_switch(text).map(|on| s.watch.hooks_private = on),
            show: |s| s.watch.hooks_private.to_string(),
        },
    },
    Setting {
        key: "watch.topics",
        kind: "TOPIC,…",
        allowed: "beginnings of topics, separated by commas",
        about: "Beginnings of the topics that events of watches may be published to, at the broker of `mqtt.broker`; nothing is published unless named. Such a topic should not be one that is subscribed to here.",
        codec: Codec::Own {
            set: |s, text| {
                let topics = text
                    .split(',')
                    .map(str::trim)
                    .filter(|topic| !topic.is_empty());
                s.watch.topics = topics.map(str::to_owned).collect();
                Ok(())
            },
            show: |s| s.watch.topics.join(","),
        },
    },
    Setting {
        key: "watch.hook_key_file",
        kind: "FILE",
        allowed: "a file with a key of 16 bytes at least, or nothing",
        about: "File with the key that web hooks are signed with (HMAC-SHA256); without it no web hook is sent. Read again for each.",
        codec: Codec::Own {
            set: |s, text| {
                s.watch.hook_key_file = (!text.is_empty()).then(|| PathBuf::from(text));
                Ok(())
            },
            show: |s| {
                let path = s.watch.hook_key_file.as_ref();
                path.map_or_else(String::new, |path| path.display().to_string())
            },
        },
    },
];
