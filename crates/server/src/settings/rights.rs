//! Settings of lists of rights that other nodes send.

use super::dispatch::url;
use super::setting::{Codec, Setting, duration_within};
use super::values::show_duration;
use super::{NodeRole, SettingError, Settings};
use crate::access::rights::{ListUse, RightsPolicy};
use crate::access::rules::AccessRule;
use std::path::PathBuf;
use std::time::Duration;

/// Most vetoes.
const VETOES_MAX: usize = 100;

/// Settings of the list of rights of another node.
#[derive(Debug, Clone)]
pub struct Rights {
    /// Use of the list.
    pub list: ListUse,
    /// Rights that no token of the list has here.
    pub vetoes: Vec<AccessRule>,
    /// Highest age of the list; `None` = any.
    pub max_age: Option<Duration>,
    /// Tokens of a list above that age are not valid.
    pub refuses_stale: bool,
    /// Node whose list a dispatcher or a cloud fetches; an edge gets the list of its cloud.
    pub from: Option<String>,
    /// File with a token of that node that may read everything.
    pub token_file: Option<PathBuf>,
    /// CA certificates for verifying that node, in PEM; `None` = certificates that the system
    /// trusts.
    pub ca: Option<PathBuf>,
}

impl Default for Rights {
    fn default() -> Rights {
        Rights {
            list: ListUse::Accept,
            vetoes: Vec::new(),
            max_age: Some(Duration::from_secs(7 * 86_400)),
            refuses_stale: false,
            from: None,
            token_file: None,
            ca: None,
        }
    }
}

impl Settings {
    /// Policy for received lists. A node that no other node sends a list ignores one that was
    /// stored before.
    pub(crate) fn rights_policy(&self) -> RightsPolicy {
        let receives = self.sync.role == NodeRole::Edge || self.rights.from.is_some();
        RightsPolicy {
            list: match receives {
                true => self.rights.list,
                false => ListUse::Ignore,
            },
            vetoes: self.rights.vetoes.clone().into(),
            max_age: self.rights.max_age,
            refuses_stale: self.rights.refuses_stale,
        }
    }
}

/// Parses rules with semicolons between.
fn vetoes(text: &str) -> Result<Vec<AccessRule>, String> {
    let rules = text
        .split(';')
        .map(str::trim)
        .filter(|rule| !rule.is_empty());
    let rules = rules.map(|rule| rule.parse::<AccessRule>().map_err(|e| e.to_string()));
    let rules: Vec<AccessRule> = rules.collect::<Result<_, _>>()?;
    match rules.len() {
        0..=VETOES_MAX => Ok(rules),
        count => Err(format!("{count} rules, at most {VETOES_MAX} are allowed")),
    }
}

fn show_vetoes(rules: &[AccessRule]) -> String {
    let rules: Vec<String> = rules.iter().map(ToString::to_string).collect();
    rules.join("; ")
}

fn file(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

fn shown(path: Option<&PathBuf>) -> String {
    path.map_or_else(String::new, |path| path.display().to_string())
}

pub(super) const TABLE: &[Setting] = &[
    Setting {
        key: "rights.list",
        kind: "USE",
        allowed: "ignore, accept or require",
        about: "Use of the list of rights that an edge gets from its cloud, and other nodes from `rights.from`. `accept`: its tokens are valid besides those of this node, where this node has any. `require`: tokens are needed even if this node has none of its own, and before the list has arrived.",
        codec: Codec::Own {
            set: |s, text| {
                let found = ListUse::ALL.into_iter().find(|found| found.name() == text);
                s.rights.list = found.ok_or("not one of the three")?;
                Ok(())
            },
            show: |s| s.rights.list.name().to_owned(),
        },
    },
    Setting {
        key: "rights.veto",
        kind: "RULES",
        allowed: "rules as those of tokens, with semicolons between: `write *; read payroll`",
        about: "Rights that tokens of the received list do not have on this node. Tokens of this node's own list are not affected.",
        codec: Codec::Own {
            set: |s, text| vetoes(text).map(|rules| s.rights.vetoes = rules),
            show: |s| show_vetoes(&s.rights.vetoes),
        },
    },
    Setting {
        key: "rights.max_age",
        kind: "DURATION",
        allowed: "1m to 3650d, or never",
        about: "Time since the sender of the received list was known to have no newer one, from which on the list counts as stale: metrics, status and log say so.",
        codec: Codec::Own {
            set: |s, text| {
                s.rights.max_age = match text {
                    "never" => None,
                    _ => {
                        let range = Duration::from_secs(60)..=Duration::from_secs(3650 * 86_400);
                        Some(duration_within(text, range)?)
                    }
                };
                Ok(())
            },
            show: |s| s.rights.max_age.map_or("never".to_owned(), show_duration),
        },
    },
    Setting {
        key: "rights.stale",
        kind: "USE",
        allowed: "accept or refuse",
        about: "Tokens of a stale list are valid all the same (`accept`), or are refused until the sender is reached (`refuse`). Tokens of this node's own list are not affected.",
        codec: Codec::Own {
            set: |s, text| {
                s.rights.refuses_stale = match text {
                    "accept" => false,
                    "refuse" => true,
                    _ => return Err("not one of the two".to_owned()),
                };
                Ok(())
            },
            show: |s| match s.rights.refuses_stale {
                true => "refuse".to_owned(),
                false => "accept".to_owned(),
            },
        },
    },
    Setting {
        key: "rights.from",
        kind: "URL",
        allowed: "the address of a cloud, such as https://cloud.example:7373, or nothing",
        about: "Cloud whose list of rights a dispatcher or another cloud takes. A cloud passes it on to its edges in place of its own list.",
        codec: Codec::Own {
            set: |s, text| {
                s.rights.from = (!text.is_empty()).then(|| url(text)).transpose()?;
                Ok(())
            },
            show: |s| s.rights.from.clone().unwrap_or_default(),
        },
    },
    Setting {
        key: "rights.token_file",
        kind: "PATH",
        allowed: "a file, or nothing",
        about: "File with a token of that cloud that may read everything (`read *`). If empty, a dispatcher uses `dispatch.token_file`.",
        codec: Codec::Own {
            set: |s, text| {
                s.rights.token_file = file(text);
                Ok(())
            },
            show: |s| shown(s.rights.token_file.as_ref()),
        },
    },
    Setting {
        key: "rights.ca",
        kind: "PATH",
        allowed: "a file in PEM, or nothing",
        about: "CA certificates for verifying that cloud. If empty, a dispatcher uses `dispatch.ca`, and other nodes the certificates that the system trusts.",
        codec: Codec::Own {
            set: |s, text| {
                s.rights.ca = file(text);
                Ok(())
            },
            show: |s| shown(s.rights.ca.as_ref()),
        },
    },
];

/// Checks across settings.
pub(super) fn together(settings: &Settings) -> Result<(), SettingError> {
    let role = settings.sync.role;
    let fault = match () {
        () if settings.rights.from.is_some()
            && !matches!(role, NodeRole::Dispatcher | NodeRole::Cloud) =>
        {
            "rights.from is for a dispatcher or a cloud: an edge gets the list of its cloud, and a node without a cloud has its own tokens only"
        }
        () if !settings.rights.vetoes.is_empty() && role == NodeRole::Dispatcher => {
            "rights.veto has no effect at a dispatcher: set it at the nodes, which check the rights of each request again"
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
    fn vetoes_read_back() {
        for text in ["", "write *", "write *; read payroll,site=4; manage *"] {
            assert_eq!(show_vetoes(&vetoes(text).unwrap()), text);
        }
        assert_eq!(vetoes(" write * ;; ").unwrap().len(), 1);
        for text in ["write", "peek *", "write *, read *"] {
            assert!(vetoes(text).is_err(), "{text}");
        }
        assert!(vetoes(&"read a;".repeat(VETOES_MAX + 1)).is_err());
    }

    #[test]
    fn a_source_belongs_to_a_dispatcher_or_a_cloud_and_a_veto_to_a_node() {
        let mut settings = Settings::new("db");
        settings.rights.from = Some("https://cloud.example".to_owned());
        for (role, is_allowed) in [
            (NodeRole::Single, false),
            (NodeRole::Edge, false),
            (NodeRole::Cloud, true),
            (NodeRole::Dispatcher, true),
        ] {
            settings.sync.role = role;
            assert_eq!(together(&settings).is_ok(), is_allowed, "{}", role.name());
        }
        settings.rights.vetoes = vetoes("write *").unwrap();
        assert!(together(&settings).is_err());
        settings.sync.role = NodeRole::Cloud;
        assert!(together(&settings).is_ok());
        assert_eq!(settings.rights_policy().list, ListUse::Accept);
        settings.rights.from = None;
        assert_eq!(settings.rights_policy().list, ListUse::Ignore);
    }
}
