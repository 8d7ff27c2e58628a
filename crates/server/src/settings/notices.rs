//! Settings of notices: what carries them between nodes and those who follow them.

use super::mqtt::{Mqtt, broker};
use super::setting::{How, Setting, duration_within};
use super::values::show_duration;
use super::{NodeRole, SettingError, Settings};
use headwater_notice::is_node_name;
use std::path::PathBuf;
use std::time::Duration;

/// What carries notices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NoticeBus {
    /// The node itself: who follows it waits there.
    #[default]
    Hub,
    /// An MQTT 5 broker.
    Mqtt,
}

/// How notices are told and heard.
#[derive(Debug, Clone)]
pub struct NoticeSettings {
    /// What carries them.
    pub bus: NoticeBus,
    /// What this node is called there; its notices stand under it.
    pub name: String,
    /// What the topics of all nodes begin with.
    pub topic: String,
    /// How often a node is asked of which nothing was heard.
    pub check: Duration,
    /// How to log in to the broker.
    pub login: Mqtt,
}

impl Default for NoticeSettings {
    fn default() -> NoticeSettings {
        NoticeSettings {
            bus: NoticeBus::default(),
            name: String::new(),
            topic: "headwater/notices".to_owned(),
            check: Duration::from_secs(60),
            login: Mqtt::default(),
        }
    }
}

fn file(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

fn shown(path: Option<&PathBuf>) -> String {
    path.map_or_else(String::new, |path| path.display().to_string())
}

fn topic(text: &str) -> Result<String, String> {
    let are_names = text.split('/').all(is_node_name);
    let is_topic = are_names && text.len() <= 200;
    is_topic.then(|| text.to_owned()).ok_or_else(|| {
        "expected names apart by /, of letters, digits, dots, dashes and underscores".to_owned()
    })
}

pub(super) static TABLE: &[Setting] = &[
    Setting {
        key: "notices.bus",
        kind: "WHAT",
        allowed: "hub or mqtt",
        about: "What carries notices from nodes to dispatchers: hub = dispatchers wait at each node; mqtt = nodes tell a broker, and dispatchers ask when they hear of something.",
        how: How::Own {
            set: |s, text| {
                s.notices.bus = match text {
                    "hub" => NoticeBus::Hub,
                    "mqtt" => NoticeBus::Mqtt,
                    _ => return Err("not one of the two".to_owned()),
                };
                Ok(())
            },
            show: |s| match s.notices.bus {
                NoticeBus::Hub => "hub".to_owned(),
                NoticeBus::Mqtt => "mqtt".to_owned(),
            },
        },
    },
    Setting {
        key: "notices.name",
        kind: "NAME",
        allowed: "1 to 64 letters, digits, dots, dashes and underscores, or nothing",
        about: "What this node is called where notices are told: its topic ends with it. A dispatcher needs none.",
        how: How::Own {
            set: |s, text| {
                if !text.is_empty() && !is_node_name(text) {
                    return Err("not a name".to_owned());
                }
                text.clone_into(&mut s.notices.name);
                Ok(())
            },
            show: |s| s.notices.name.clone(),
        },
    },
    Setting {
        key: "notices.topic",
        kind: "TOPIC",
        allowed: "names apart by /, at most 200 bytes",
        about: "What the topics of notices begin with, the same at all nodes of a fleet.",
        how: How::Own {
            set: |s, text| topic(text).map(|topic| s.notices.topic = topic),
            show: |s| s.notices.topic.clone(),
        },
    },
    Setting {
        key: "notices.check",
        kind: "DURATION",
        allowed: "1s to 1h",
        about: "How often a dispatcher asks a node of which it has heard nothing, in case a notice was lost.",
        how: How::Own {
            set: |s, text| {
                let hour = Duration::from_secs(3600);
                s.notices.check = duration_within(text, Duration::from_secs(1)..=hour)?;
                Ok(())
            },
            show: |s| show_duration(s.notices.check),
        },
    },
    Setting {
        key: "notices.broker",
        kind: "URL",
        allowed: "mqtt://HOST[:PORT], or mqtts://HOST[:PORT] for TLS; or nothing",
        about: "MQTT 5 broker that carries notices.",
        how: How::Own {
            set: |s, text| broker(text).map(|broker| s.notices.login.broker = broker),
            show: |s| {
                let broker = s.notices.login.broker.as_ref();
                broker.map_or_else(String::new, ToString::to_string)
            },
        },
    },
    Setting {
        key: "notices.user",
        kind: "NAME",
        allowed: "a name, or nothing",
        about: "Name to log in to the broker of notices with.",
        how: How::Own {
            set: |s, text| {
                text.clone_into(&mut s.notices.login.user);
                Ok(())
            },
            show: |s| s.notices.login.user.clone(),
        },
    },
    Setting {
        key: "notices.password_file",
        kind: "FILE",
        allowed: "a file, or nothing",
        about: "File that holds the password for the broker of notices; a line end behind it does not count. Read at each connection.",
        how: How::Own {
            set: |s, text| {
                s.notices.login.password_file = file(text);
                Ok(())
            },
            show: |s| shown(s.notices.login.password_file.as_ref()),
        },
    },
    Setting {
        key: "notices.ca",
        kind: "FILE",
        allowed: "a file in PEM, or nothing",
        about: "Certificates that those of the broker of notices must be signed by; without it those that the system trusts.",
        how: How::Own {
            set: |s, text| {
                s.notices.login.ca = file(text);
                Ok(())
            },
            show: |s| shown(s.notices.login.ca.as_ref()),
        },
    },
];

/// What no setting can say alone.
pub(super) fn together(settings: &Settings) -> Result<(), SettingError> {
    let notices = &settings.notices;
    let login = &notices.login;
    let is_mqtt = notices.bus == NoticeBus::Mqtt;
    let tells = settings.sync.role != NodeRole::Dispatcher;
    let fault = match () {
        () if is_mqtt && cfg!(not(feature = "mqtt")) => {
            "notices.bus is mqtt, and this program was built without MQTT: build it with the feature mqtt"
        }
        () if is_mqtt && login.broker.is_none() => {
            "notices.bus = mqtt needs notices.broker: the address of the broker"
        }
        () if is_mqtt && tells && notices.name.is_empty() => {
            "notices.bus = mqtt needs notices.name: what this node is called there"
        }
        () if !is_mqtt && login.broker.is_some() => {
            "notices.broker is used with notices.bus = mqtt only: set both, or none"
        }
        () if login.password_file.is_some() && login.user.is_empty() => {
            "notices.password_file needs notices.user too"
        }
        () if login.ca.is_some() && login.broker.as_ref().is_some_and(|b| !b.tls) => {
            "notices.ca is for TLS: write mqtts:// in notices.broker"
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
    fn what_does_not_go_together_is_told() {
        let told = |change: fn(&mut Settings)| {
            let mut settings = Settings::new("x");
            change(&mut settings);
            together(&settings).map_err(|e| e.to_string())
        };
        assert_eq!(told(|_| {}), Ok(()));
        let broker_of = || broker("mqtt://b").unwrap();
        assert!(told(|s| s.notices.login.ca = file("x")).is_ok());
        let only_broker = told(|s| s.notices.login.broker = broker("mqtt://b").unwrap());
        assert!(only_broker.unwrap_err().contains("notices.bus"));
        let no_user = told(|s| s.notices.login.password_file = file("x"));
        assert!(no_user.unwrap_err().contains("notices.user"));
        if cfg!(feature = "mqtt") {
            let no_broker = told(|s| s.notices.bus = NoticeBus::Mqtt);
            assert!(no_broker.unwrap_err().contains("notices.broker"));
            let mut settings = Settings::new("x");
            settings.notices.bus = NoticeBus::Mqtt;
            settings.notices.login.broker = broker_of();
            let no_name = together(&settings).unwrap_err().to_string();
            assert!(no_name.contains("notices.name"), "{no_name}");
            settings.sync.role = NodeRole::Dispatcher;
            assert!(together(&settings).is_ok());
            settings.notices.login.ca = file("ca.pem");
            let no_tls = together(&settings).unwrap_err().to_string();
            assert!(no_tls.contains("mqtts://"), "{no_tls}");
        }
    }

    #[test]
    fn topics_are_names() {
        assert_eq!(topic("a/b.c").unwrap(), "a/b.c");
        for text in ["", "/", "a/", "a/+", "#", "a b", &"a".repeat(201)] {
            assert!(topic(text).is_err(), "{text}");
        }
    }
}
