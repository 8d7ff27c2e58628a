//! Settings of notices: the bus between nodes and their followers.

use super::mqtt::{Broker, Mqtt, broker, broker_or};
use super::setting::{Codec, Setting, duration_within};
use super::values::show_duration;
use super::{NodeRole, SettingError, Settings};
use headwater_protocol::notice::is_node_name;
use headwater_protocol::xmpp::{Jid, JidError};
use std::path::PathBuf;
use std::time::Duration;

/// Bus of notices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NoticeBus {
    /// The node itself: followers wait there.
    #[default]
    Hub,
    /// An MQTT 5 broker.
    Mqtt,
    /// The publish-subscribe of an XMPP server.
    Xmpp,
}

/// Settings of publishing and receiving notices.
#[derive(Debug, Clone)]
pub struct NoticeSettings {
    /// Bus of notices.
    pub bus: NoticeBus,
    /// Name of this node there; its notices are under it.
    pub name: String,
    /// Prefix of the topics of all nodes.
    pub topic: String,
    /// Interval of asking a silent node.
    pub check: Duration,
    /// Login to the broker of either kind.
    pub login: Mqtt,
    /// The XMPP server; the rest of the login is in `login`. TLS here means TLS from the first byte
    /// on.
    pub xmpp: Option<Broker>,
    /// Domain of publish-subscribe at the server; empty = `pubsub.` before the domain of the
    /// account.
    pub service: String,
}

impl Default for NoticeSettings {
    fn default() -> NoticeSettings {
        NoticeSettings {
            bus: NoticeBus::default(),
            name: String::new(),
            topic: "headwater/notices".to_owned(),
            check: Duration::from_secs(60),
            login: Mqtt::default(),
            xmpp: None,
            service: String::new(),
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

/// The address of an XMPP server: `xmpp://HOST[:PORT]`, or `xmpps://HOST[:PORT]` for TLS from the
/// first byte on.
///
/// # Errors
/// Description of the expected value.
pub fn xmpp_server(text: &str) -> Result<Broker, String> {
    let (as_mqtt, port) = match text.split_once("://") {
        Some(("xmpp", rest)) => (format!("mqtt://{rest}"), 5222),
        Some(("xmpps", rest)) => (format!("mqtts://{rest}"), 5223),
        _ => return Err("expected an address such as xmpp://xmpp.example:5222".to_owned()),
    };
    let server = broker_or(&as_mqtt, port)?;
    server.ok_or_else(|| "expected the name of a server behind xmpp://".to_owned())
}

/// Sets the address by its scheme.
fn set_broker(settings: &mut Settings, text: &str) -> Result<(), String> {
    let notices = &mut settings.notices;
    let is_xmpp = text.starts_with("xmpp");
    let server = is_xmpp.then(|| xmpp_server(text)).transpose()?;
    let broker = if is_xmpp { None } else { broker(text)? };
    (notices.xmpp, notices.login.broker) = (server, broker);
    Ok(())
}

fn xmpp_scheme(server: &Broker) -> &'static str {
    if server.tls { "xmpps" } else { "xmpp" }
}

pub(super) static TABLE: &[Setting] = &[
    Setting {
        key: "notices.bus",
        kind: "WHAT",
        allowed: "hub, mqtt or xmpp",
        about: "What carries notices from nodes to dispatchers: hub = dispatchers wait at each node; mqtt, xmpp = nodes tell a broker, or a server of XMPP with publish-subscribe, and dispatchers ask when they hear of something.",
        codec: Codec::Own {
            set: |s, text| {
                s.notices.bus = match text {
                    "hub" => NoticeBus::Hub,
                    "mqtt" => NoticeBus::Mqtt,
                    "xmpp" => NoticeBus::Xmpp,
                    _ => return Err("not one of the three".to_owned()),
                };
                Ok(())
            },
            show: |s| match s.notices.bus {
                NoticeBus::Hub => "hub".to_owned(),
                NoticeBus::Mqtt => "mqtt".to_owned(),
                NoticeBus::Xmpp => "xmpp".to_owned(),
            },
        },
    },
    Setting {
        key: "notices.name",
        kind: "NAME",
        allowed: "1 to 64 letters, digits, dots, dashes and underscores, or nothing",
        about: "Name of this node in notices: its topic ends with it. A dispatcher needs none.",
        codec: Codec::Own {
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
        codec: Codec::Own {
            set: |s, text| topic(text).map(|topic| s.notices.topic = topic),
            show: |s| s.notices.topic.clone(),
        },
    },
    Setting {
        key: "notices.check",
        kind: "DURATION",
        allowed: "1s to 1h",
        about: "How often a dispatcher asks a node of which it has heard nothing, in case a notice was lost.",
        codec: Codec::Own {
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
        allowed: "mqtt://HOST[:PORT], mqtts://HOST[:PORT] for TLS, xmpp://HOST[:PORT], xmpps://HOST[:PORT] for TLS from the first byte on; or nothing",
        about: "MQTT 5 broker or XMPP server that carries notices. Ports of XMPP are 5222 and 5223 unless given; under xmpp:// TLS is begun by STARTTLS, and only a server on this machine may have none.",
        codec: Codec::Own {
            set: set_broker,
            show: |s| {
                if let Some(server) = &s.notices.xmpp {
                    return format!("{}://{}:{}", xmpp_scheme(server), server.host, server.port);
                }
                let broker = s.notices.login.broker.as_ref();
                broker.map_or_else(String::new, ToString::to_string)
            },
        },
    },
    Setting {
        key: "notices.service",
        kind: "DOMAIN",
        allowed: "a domain, or nothing",
        about: "Where the XMPP server has publish-subscribe; without it at pubsub. before the domain of the account.",
        codec: Codec::Own {
            set: |s, text| {
                if !text.is_empty() {
                    let jid: Jid = text.parse().map_err(|e: JidError| e.to_string())?;
                    if jid.to_string() != jid.domain() {
                        return Err("expected a domain alone".to_owned());
                    }
                }
                text.clone_into(&mut s.notices.service);
                Ok(())
            },
            show: |s| s.notices.service.clone(),
        },
    },
    Setting {
        key: "notices.user",
        kind: "NAME",
        allowed: "a name, or nothing",
        about: "Name to log in to the broker of notices with; for XMPP the account, NAME@DOMAIN.",
        codec: Codec::Own {
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
        codec: Codec::Own {
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
        codec: Codec::Own {
            set: |s, text| {
                s.notices.login.ca = file(text);
                Ok(())
            },
            show: |s| shown(s.notices.login.ca.as_ref()),
        },
    },
];

/// Checks across settings.
pub(super) fn together(settings: &Settings) -> Result<(), SettingError> {
    let notices = &settings.notices;
    let login = &notices.login;
    let bus = notices.bus;
    let tells = settings.sync.role != NodeRole::Dispatcher;
    let is_account = |user: &str| user.parse::<Jid>().is_ok_and(|jid| !jid.local().is_empty());
    let has_tls = match &notices.xmpp {
        Some(_) => true,
        None => login.broker.as_ref().is_none_or(|broker| broker.tls),
    };
    let fault = match bus {
        NoticeBus::Mqtt if cfg!(not(feature = "mqtt")) => {
            "notices.bus is mqtt, and this program was built without MQTT: build it with the feature mqtt"
        }
        NoticeBus::Mqtt if login.broker.is_none() => {
            "notices.bus = mqtt needs notices.broker: the address of the broker, mqtt://HOST"
        }
        NoticeBus::Xmpp if notices.xmpp.is_none() => {
            "notices.bus = xmpp needs notices.broker: the address of the server, xmpp://HOST"
        }
        NoticeBus::Xmpp if !is_account(&login.user) => {
            "notices.bus = xmpp needs notices.user: the account, NAME@DOMAIN"
        }
        NoticeBus::Xmpp if login.password_file.is_none() => {
            "notices.bus = xmpp needs notices.password_file: the password of the account"
        }
        NoticeBus::Mqtt | NoticeBus::Xmpp if tells && notices.name.is_empty() => {
            "notices.bus = mqtt or xmpp needs notices.name: what this node is called there"
        }
        NoticeBus::Hub if login.broker.is_some() || notices.xmpp.is_some() => {
            "notices.broker is used with notices.bus = mqtt or xmpp only: set both, or none"
        }
        _ if login.password_file.is_some() && login.user.is_empty() => {
            "notices.password_file needs notices.user too"
        }
        _ if login.ca.is_some() && !has_tls => {
            "notices.ca is for TLS: write mqtts:// in notices.broker"
        }
        _ => return Ok(()),
    };
    Err(SettingError::Together(fault.to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn contradictions_are_refused() {
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
    fn xmpp_needs_a_server_an_account_and_a_password() {
        let mut settings = Settings::new("x");
        settings.notices.bus = NoticeBus::Xmpp;
        settings.notices.name = "north".to_owned();
        let told = |settings: &Settings| together(settings).unwrap_err().to_string();
        assert!(told(&settings).contains("xmpp://HOST"));
        set_broker(&mut settings, "xmpps://b.example").unwrap();
        let server = settings.notices.xmpp.clone().unwrap();
        assert_eq!((server.tls, server.port), (true, 5223));
        set_broker(&mut settings, "xmpp://[::1]:7").unwrap();
        let server = settings.notices.xmpp.clone().unwrap();
        assert_eq!(
            (server.tls, server.host.as_str(), server.port),
            (false, "[::1]", 7)
        );
        for user in ["", "north", "@b.example"] {
            user.clone_into(&mut settings.notices.login.user);
            assert!(told(&settings).contains("NAME@DOMAIN"), "{user}");
        }
        settings.notices.login.user = "north@b.example".to_owned();
        assert!(told(&settings).contains("password_file"));
        settings.notices.login.password_file = file("x");
        settings.notices.login.ca = file("ca.pem");
        assert!(together(&settings).is_ok());
        settings.notices.bus = NoticeBus::Mqtt;
        assert!(together(&settings).is_err());
        set_broker(&mut settings, "mqtt://b").unwrap();
        assert_eq!(settings.notices.xmpp, None);
        for bad in ["xmpp://", "xmpp://a@b", "http://b"] {
            assert!(set_broker(&mut settings, bad).is_err(), "{bad}");
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
