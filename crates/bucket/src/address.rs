//! Address of a bucket, as text: `s3://BUCKET/PREFIX?endpoint=…&region=…` or `file:///DIRECTORY`.
//!
//! Invariant: secrets are not part of an address: they are read from the environment.

use crate::directory::Directory;
use crate::error::BucketError;
#[cfg(feature = "s3")]
use crate::s3::{Credentials, S3, S3Location};
use crate::store::ObjectStore;
use headwater_io::Clock;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

const EXPECTED: &str = "expected s3://BUCKET/PREFIX, with ?endpoint=URL&region=NAME&style=path|host where needed, or file:///DIRECTORY";

/// Where a bucket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A directory.
    Directory(PathBuf),
    /// A bucket of a store that speaks S3's protocol.
    S3 {
        /// Name of the bucket.
        bucket: String,
        /// Prefix of all keys.
        prefix: String,
        /// Address of the store; `None` = from the environment, else AWS.
        endpoint: Option<String>,
        /// Region of the store; `None` = from the environment.
        region: Option<String>,
        /// Whether the bucket is part of the path; `None` = only if there is an endpoint.
        is_path_style: Option<bool>,
    },
}

impl FromStr for Address {
    type Err = BucketError;

    fn from_str(text: &str) -> Result<Address, BucketError> {
        let bad = |why: &str| BucketError::invalid(format!("{text}: {why}; {EXPECTED}"));
        if let Some(path) = text.strip_prefix("file://") {
            return match path.starts_with('/') {
                true => Ok(Address::Directory(PathBuf::from(path))),
                false => Err(bad("the path is not absolute")),
            };
        }
        let rest = text
            .strip_prefix("s3://")
            .ok_or_else(|| bad("unknown scheme"))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        if bucket.is_empty() {
            return Err(bad("the bucket name is missing"));
        }
        let mut prefix = prefix.trim_matches('/').to_owned();
        if !prefix.is_empty() {
            prefix.push('/');
        }
        let (mut endpoint, mut region, mut is_path_style) = (None, None, None);
        for part in query.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("endpoint", value)) => endpoint = Some(value.to_owned()),
                Some(("region", value)) => region = Some(value.to_owned()),
                Some(("style", "path")) => is_path_style = Some(true),
                Some(("style", "host")) => is_path_style = Some(false),
                _ => return Err(bad(&format!("unknown option `{part}`"))),
            }
        }
        Ok(Address::S3 {
            bucket: bucket.to_owned(),
            prefix,
            endpoint,
            region,
            is_path_style,
        })
    }
}

/// The store at an address, with credentials of the environment: `AWS_ACCESS_KEY_ID`,
/// `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`; `AWS_REGION` and `AWS_ENDPOINT_URL` apply if the
/// address does not set them.
///
/// # Errors
/// `invalid` for missing credentials or an invalid address; `unreachable` for a directory that
/// cannot be created.
pub fn open_store(
    address: &Address,
    variable: &dyn Fn(&str) -> Option<String>,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn ObjectStore>, BucketError> {
    match address {
        Address::Directory(path) => Ok(Arc::new(Directory::new(path)?)),
        #[cfg(not(feature = "s3"))]
        Address::S3 { bucket, .. } => {
            let _ = (variable, clock);
            Err(BucketError::invalid(format!(
                "s3://{bucket}: this program was built without support for S3 (the feature `s3`)"
            )))
        }
        #[cfg(feature = "s3")]
        Address::S3 {
            bucket,
            prefix,
            endpoint,
            region,
            is_path_style,
        } => {
            let needed = |name: &str| {
                variable(name).ok_or_else(|| {
                    BucketError::invalid(format!(
                        "the environment variable {name} is not set: it is needed to access the bucket `{bucket}`"
                    ))
                })
            };
            let credentials = Credentials {
                key: needed("AWS_ACCESS_KEY_ID")?,
                secret: needed("AWS_SECRET_ACCESS_KEY")?,
                token: variable("AWS_SESSION_TOKEN"),
            };
            let region = region.clone().or_else(|| variable("AWS_REGION"));
            let region = region.unwrap_or_else(|| "us-east-1".to_owned());
            let endpoint = endpoint.clone().or_else(|| variable("AWS_ENDPOINT_URL"));
            let place = S3Location {
                is_path_style: is_path_style.unwrap_or(endpoint.is_some()),
                endpoint: endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com")),
                region,
                bucket: bucket.clone(),
                prefix: prefix.clone(),
            };
            Ok(Arc::new(S3::new(&place, &credentials, clock)?))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use headwater_io::SystemClock;

    #[test]
    fn addresses_are_read_and_what_is_none_is_refused_with_what_is_expected() {
        let read: Address = "s3://plants/north/?endpoint=http://127.0.0.1:9000"
            .parse()
            .unwrap();
        let expected = Address::S3 {
            bucket: "plants".to_owned(),
            prefix: "north/".to_owned(),
            endpoint: Some("http://127.0.0.1:9000".to_owned()),
            region: None,
            is_path_style: None,
        };
        assert_eq!(read, expected);
        let directory: Address = "file:///srv/bucket".parse().unwrap();
        assert_eq!(directory, Address::Directory(PathBuf::from("/srv/bucket")));
        for bad in ["s3://", "file://here", "gs://x", "s3://x?colour=red"] {
            let refused = Address::from_str(bad).unwrap_err().to_string();
            assert!(
                refused.contains(bad) && refused.contains("expected s3://"),
                "{refused}"
            );
        }
    }

    #[test]
    fn without_credentials_it_is_said_which_variable_is_missing() {
        let address: Address = "s3://plants".parse().unwrap();
        let clock = Arc::new(SystemClock::new());
        let refused = open_store(&address, &|_| None, clock).unwrap_err();
        assert_eq!(refused.kind().code(), "E_BUCKET");
        assert!(refused.to_string().contains("AWS_ACCESS_KEY_ID"));
    }
}
