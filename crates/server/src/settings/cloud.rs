//! Settings of a cloud: budgets of readers, its bucket, and its peer.

use super::dispatch::{file, shown, url};
use super::setting::{Codec, Setting, duration_within};
use super::sync::UNLIMITED;
use super::values::{parse_count, parse_size, show_duration, show_size};
use super::{Confirm, NodeRole, SettingError, Settings};
use crate::access::tokens::FetchLimit;
use crate::built::HAS_BUCKET;
use headwater_cluster::StreamShare;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// Reads the budget of a token for fetching.
fn fetch_limit(text: &str) -> Result<FetchLimit, String> {
    match text {
        UNLIMITED => Ok(FetchLimit::Unlimited),
        _ => parse_size(text).map(FetchLimit::Bytes),
    }
}

fn show_fetch_limit(limit: FetchLimit) -> String {
    match limit {
        FetchLimit::Unlimited => UNLIMITED.to_owned(),
        FetchLimit::Bytes(bytes) => show_size(bytes),
    }
}

pub(super) static TABLE: &[Setting] = &[
    Setting {
        key: "cloud.fetch_per_day",
        kind: "SIZE",
        allowed: "0 and more, or unlimited",
        about: "Most bytes that a token may have fetched from edges on one day (UTC), by requests with fetch=true, as a dispatcher makes them. Tokens may have budgets of their own: headwater token create --fetch-per-day. Clients without a token share one budget.",
        codec: Codec::Own {
            set: |s, text| fetch_limit(text).map(|limit| s.sync.fetch_per_day = limit),
            show: |s| show_fetch_limit(s.sync.fetch_per_day),
        },
    },
    Setting {
        key: "cloud.bucket",
        kind: "URL",
        allowed: "s3://BUCKET/PREFIX, with ?endpoint=URL&region=NAME&style=path|host where needed, file:///DIRECTORY, or nothing",
        about: "The bucket in which a cloud stores its copies, so that another node can take over. Keys come from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN.",
        codec: Codec::Own {
            set: |s, text| {
                s.cloud.bucket = (!text.is_empty()).then(|| text.to_owned());
                Ok(())
            },
            show: |s| s.cloud.bucket.clone().unwrap_or_default(),
        },
    },
    Setting {
        key: "cloud.confirm",
        kind: "WHERE",
        allowed: "disk, bucket or peer",
        about: "When a cloud confirms data to an edge: once the data is on the disk of the cloud, once it is in the bucket, or once it is proven on the disk of the peer (cloud.peer), too. Without a bucket, bucket means disk.",
        codec: Codec::Own {
            set: |s, text| {
                s.cloud.confirm = match text {
                    "disk" => Confirm::Disk,
                    "bucket" => Confirm::Bucket,
                    "peer" => Confirm::Peer,
                    _ => return Err("not one of the three".to_owned()),
                };
                Ok(())
            },
            show: |s| match s.cloud.confirm {
                Confirm::Disk => "disk".to_owned(),
                Confirm::Bucket => "bucket".to_owned(),
                Confirm::Peer => "peer".to_owned(),
            },
        },
    },
    Setting {
        key: "cloud.commit_every",
        kind: "DURATION",
        allowed: "1s to 1h",
        about: "How often new data is written to the bucket: one object and one put of the head each time, if there is any. Longer intervals cost fewer requests and delay the confirmation to edges.",
        codec: Codec::Own {
            set: |s, text| {
                let found = duration_within(text, Duration::from_secs(1)..=HOUR)?;
                s.cloud.commit_every = found;
                Ok(())
            },
            show: |s| show_duration(s.cloud.commit_every),
        },
    },
    Setting {
        key: "cloud.lease",
        kind: "DURATION",
        allowed: "1s to 1h",
        about: "Duration of this node's lease of its group of copies, which it renews after a third of it. After a node fails, another one waits this long before it takes over the group.",
        codec: Codec::Own {
            set: |s, text| {
                s.cloud.lease = duration_within(text, Duration::from_secs(1)..=HOUR)?;
                Ok(())
            },
            show: |s| show_duration(s.cloud.lease),
        },
    },
    Setting {
        key: "cloud.group",
        kind: "N",
        allowed: "0 and more",
        about: "Group of copies in the bucket that this node serves. Of the nodes with the same group, one holds the lease, and the others wait for it to end.",
        codec: Codec::Own {
            set: |s, text| {
                s.cloud.group = parse_count(text)?;
                Ok(())
            },
            show: |s| s.cloud.group.to_string(),
        },
    },
    Setting {
        key: "cloud.peer",
        kind: "URL",
        allowed: "the address of another cloud, such as https://south.example:7373, or nothing",
        about: "Another cloud that gets a copy of everything that this one has, so that it answers queries about everything; set each as the peer of the other. Of more than two clouds, each names the next one, in a ring.",
        codec: Codec::Own {
            set: |s, text| {
                s.peer.url = (!text.is_empty()).then(|| url(text)).transpose()?;
                Ok(())
            },
            show: |s| s.peer.url.clone().unwrap_or_default(),
        },
    },
    Setting {
        key: "cloud.peer_name",
        kind: "NAME",
        allowed: "letters, digits, dashes and underscores, or nothing",
        about: "Name of this node at its peer: its edge `pump` is `pump.NAME` there, and its own data `NAME`. If empty, digits of the identity of its database.",
        codec: Codec::Own {
            set: |s, text| {
                let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
                if !text.chars().all(is_part) || text.len() > 32 {
                    return Err(
                        "expected at most 32 letters, digits, dashes and underscores".to_owned(),
                    );
                }
                text.clone_into(&mut s.peer.name);
                Ok(())
            },
            show: |s| s.peer.name.clone(),
        },
    },
    Setting {
        key: "cloud.peer_token_file",
        kind: "PATH",
        allowed: "a file, or nothing",
        about: "File with a token of the peer that may manage everything (`manage *`).",
        codec: Codec::Own {
            set: |s, text| {
                s.peer.token_file = file(text);
                Ok(())
            },
            show: |s| shown(s.peer.token_file.as_ref()),
        },
    },
    Setting {
        key: "cloud.peer_ca",
        kind: "PATH",
        allowed: "a file in PEM, or nothing",
        about: "CA certificates for verifying the peer. If empty, the certificates that the system trusts.",
        codec: Codec::Own {
            set: |s, text| {
                s.peer.ca = file(text);
                Ok(())
            },
            show: |s| shown(s.peer.ca.as_ref()),
        },
    },
    Setting {
        key: "cloud.peer_want",
        kind: "EXTENT",
        allowed: "full, or summaries:LEVEL",
        about: "Extent of the copies at the peer. With summaries the peer answers aggregates and tiles from this level on by itself, and says of rows that they are elsewhere, or fetches them.",
        codec: Codec::Own {
            set: |s, text| {
                let want: StreamShare = text.parse()?;
                if want == StreamShare::Nothing {
                    return Err("expected full, or summaries:LEVEL".to_owned());
                }
                s.peer.want = want;
                Ok(())
            },
            show: |s| s.peer.want.to_string(),
        },
    },
];

/// Checks across settings.
pub(super) fn together(settings: &Settings) -> Result<(), SettingError> {
    let has_bucket = settings.cloud.bucket.is_some();
    let fault = match () {
        () if has_bucket && settings.sync.role != NodeRole::Cloud => {
            "cloud.bucket stores copies of edges: set role = cloud with it"
        }
        () if settings.peer.url.is_some() && settings.sync.role != NodeRole::Cloud => {
            "cloud.peer gets copies of a cloud: set role = cloud with it"
        }
        () if settings.cloud.confirm == Confirm::Peer && settings.peer.url.is_none() => {
            "cloud.confirm = peer confirms what the peer has, too: set cloud.peer with it"
        }
        () if has_bucket && !HAS_BUCKET => "cloud.bucket: this program was built without buckets",
        () => return Ok(()),
    };
    Err(SettingError::Together(fault.to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn budgets_of_tokens_read_back() {
        for text in ["unlimited", "10MiB", "0", "18446744073709551615"] {
            assert_eq!(show_fetch_limit(fetch_limit(text).unwrap()), text);
        }
        for text in [
            "",
            "-1",
            "+1",
            "1.5MiB",
            "Unlimited",
            "18446744073709551616",
            "17179869184GiB",
        ] {
            assert!(fetch_limit(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_bucket_belongs_to_a_cloud() {
        let mut settings = Settings::new("db");
        assert!(together(&settings).is_ok());
        settings.cloud.bucket = Some("file:///b".to_owned());
        let refused = together(&settings).unwrap_err().to_string();
        assert!(refused.contains("role = cloud"), "{refused}");
    }

    #[test]
    fn a_peer_belongs_to_a_cloud_and_has_an_address() {
        let mut settings = Settings::new("db");
        settings.peer.url = Some("http://south.example:7373".to_owned());
        let refused = together(&settings).unwrap_err().to_string();
        assert!(refused.contains("role = cloud"), "{refused}");
        settings.sync.role = NodeRole::Cloud;
        assert!(together(&settings).is_ok());
        settings.cloud.confirm = Confirm::Peer;
        assert!(together(&settings).is_ok());
        settings.peer.url = None;
        let refused = together(&settings).unwrap_err().to_string();
        assert!(refused.contains("set cloud.peer"), "{refused}");
    }
}
