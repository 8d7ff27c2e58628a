//! Settings of a cloud that keeps its copies in a bucket.

use super::setting::{Codec, Setting, duration_within};
use super::values::{parse_count, show_duration};
use super::{NodeRole, SettingError, Settings};
use std::time::Duration;

/// Event after which an edge is told that the cloud has its data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Confirm {
    /// After the data is on the cloud's disk.
    Disk,
    /// After the data is in the bucket.
    #[default]
    Bucket,
}

/// Settings of a cloud with a bucket.
#[derive(Debug, Clone)]
pub struct Cloud {
    /// Location of the bucket; `None` = no bucket.
    pub bucket: Option<String>,
    /// Event after which an edge is told that the cloud has its data.
    pub confirm: Confirm,
    /// Interval of commits to the bucket.
    pub commit_every: Duration,
    /// Validity of the lease of the group without renewal.
    pub lease: Duration,
    /// Group of copies of the bucket that this node owns, one node at a time.
    pub group: u32,
}

impl Default for Cloud {
    fn default() -> Cloud {
        Cloud {
            bucket: None,
            confirm: Confirm::default(),
            commit_every: Duration::from_secs(10),
            lease: Duration::from_secs(30),
            group: 0,
        }
    }
}

const HOUR: Duration = Duration::from_secs(3600);

pub(super) static TABLE: &[Setting] = &[
    Setting {
        key: "cloud.bucket",
        kind: "URL",
        allowed: "s3://BUCKET/PREFIX, with ?endpoint=URL&region=NAME&style=path|host where needed, file:///DIRECTORY, or nothing",
        about: "The bucket in which a cloud keeps its copies, so that another node can go on from it. Keys come from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN.",
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
        allowed: "disk or bucket",
        about: "When an edge gets the confirmation that the cloud has its data: once they are on the disk of the cloud, or once it is in the bucket. Without a bucket it is the former.",
        codec: Codec::Own {
            set: |s, text| {
                s.cloud.confirm = match text {
                    "disk" => Confirm::Disk,
                    "bucket" => Confirm::Bucket,
                    _ => return Err("not one of the two".to_owned()),
                };
                Ok(())
            },
            show: |s| match s.cloud.confirm {
                Confirm::Disk => "disk".to_owned(),
                Confirm::Bucket => "bucket".to_owned(),
            },
        },
    },
    Setting {
        key: "cloud.commit_every",
        kind: "DURATION",
        allowed: "1s to 1h",
        about: "How often what has come is put into the bucket: one object and one put of the head each time, if anything has. Longer costs fewer requests, and edges are told later.",
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
        about: "For how long this node holds its group of copies without saying so again, which it does after a third of it. After a node's death another waits for so long before it takes the group.",
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
        about: "Which copies of the bucket this node holds. Nodes with the same group take turns: one holds it, the others wait for its lease to end.",
        codec: Codec::Own {
            set: |s, text| {
                s.cloud.group = parse_count(text)?;
                Ok(())
            },
            show: |s| s.cloud.group.to_string(),
        },
    },
];

/// Checks across settings.
pub(super) fn together(settings: &Settings) -> Result<(), SettingError> {
    let has_bucket = settings.cloud.bucket.is_some();
    let fault = match () {
        () if has_bucket && settings.sync.role != NodeRole::Cloud => {
            "cloud.bucket keeps copies of edges: set role = cloud with it"
        }
        () if has_bucket && cfg!(not(feature = "bucket")) => {
            "cloud.bucket: this program was built without buckets"
        }
        () => return Ok(()),
    };
    Err(SettingError::Together(fault.to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_bucket_belongs_to_a_cloud() {
        let mut settings = Settings::new("db");
        assert!(together(&settings).is_ok());
        settings.cloud.bucket = Some("file:///b".to_owned());
        let refused = together(&settings).unwrap_err().to_string();
        assert!(refused.contains("role = cloud"), "{refused}");
    }
}
