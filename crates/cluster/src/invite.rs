//! The text that lets an edge join a cloud, once: the cloud's address, and a secret.
//!
//! `hwjoin1.` followed by the base64 (URL alphabet, without padding) of JSON: `url`, `edge`,
//! `secret` and, if systems do not trust the cloud's certificate, `ca` in PEM.

use crate::error::ClusterError;
use data_encoding::BASE64URL_NOPAD;
use serde::{Deserialize, Serialize};

const PREFIX: &str = "hwjoin1.";
/// Prefix of the secret of an invitation, so that scanners for leaked secrets find it.
pub(crate) const SECRET_PREFIX: &str = "hwi_";

/// Content of an invitation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invite {
    /// Address of the cloud: `https://HOST:PORT`, or `http:` if the network is trusted.
    pub url: String,
    /// The cloud's name for the edge.
    pub edge: String,
    /// Worth one joining.
    pub secret: String,
    /// Certificates that sign the cloud's certificate, in PEM; `None` = those that the system
    /// trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
}

impl Invite {
    /// The invitation as one word of text.
    ///
    /// # Errors
    /// Should not fail: all fields are texts.
    pub fn encode(&self) -> Result<String, ClusterError> {
        let json = serde_json::to_vec(self).map_err(|e| ClusterError::invalid(e.to_string()))?;
        Ok(format!("{PREFIX}{}", BASE64URL_NOPAD.encode(&json)))
    }

    /// Reads an invitation.
    ///
    /// # Errors
    /// `invalid` if the text is not a valid invitation.
    pub fn decode(text: &str) -> Result<Invite, ClusterError> {
        let none = || {
            ClusterError::invalid(
                "not a valid invitation: expected the complete text that `headwater edges add` printed, which begins with `hwjoin1.`",
            )
        };
        let coded = text.trim().strip_prefix(PREFIX).ok_or_else(none)?;
        let json = BASE64URL_NOPAD
            .decode(coded.as_bytes())
            .map_err(|_| none())?;
        let invite: Invite = serde_json::from_slice(&json).map_err(|_| none())?;
        check_url(&invite.url)?;
        Ok(invite)
    }
}

/// Checks the address of a cloud.
pub(crate) fn check_url(url: &str) -> Result<(), ClusterError> {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    let is_address = rest.is_some_and(|rest| {
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        !rest.is_empty()
            && !rest.contains(['/', '?', '#', '@'])
            && !rest.chars().any(char::is_whitespace)
    });
    match is_address {
        true => Ok(()),
        false => Err(ClusterError::invalid(format!(
            "`{url}`: expected the address of a cloud, such as https://cloud.example:7373"
        ))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn invite() -> Invite {
        Invite {
            url: "https://cloud.example:7373".to_owned(),
            edge: "pump-7".to_owned(),
            secret: "hwi_00ff".to_owned(),
            ca: None,
        }
    }

    #[test]
    fn an_invitation_is_read_as_it_was_written() {
        let text = invite().encode().unwrap();
        assert_eq!(Invite::decode(&format!(" {text}\n")).unwrap(), invite());
    }

    #[test]
    fn what_is_no_invitation_says_what_one_is() {
        let text = invite().encode().unwrap();
        for wrong in [
            "",
            "hwjoin1.",
            "hw_1234",
            &text[..text.len() - 3],
            &format!("{text}="),
        ] {
            let error = Invite::decode(wrong).unwrap_err().to_string();
            assert!(error.contains("headwater edges add"), "{wrong}: {error}");
        }
    }

    #[test]
    fn addresses_are_those_of_a_server() {
        for right in [
            "http://127.0.0.1:7373",
            "https://cloud.example/",
            "https://[::1]:1",
        ] {
            check_url(right).unwrap();
        }
        for wrong in [
            "",
            "cloud",
            "ftp://x",
            "https://",
            "https://a/b",
            "http://u@h",
            "http://a b",
        ] {
            assert!(check_url(wrong).is_err(), "{wrong}");
        }
    }
}
