//! Settings of notices: the bus between nodes and their followers.

use super::mqtt::{broker, broker_or};
use super::setting::{Codec, SWITCH, Setting, duration_within};
use super::values::{parse_switch, show_duration};
use super::{Broker, NodeRole, NoticeBus, NoticeSettings, SettingError, Settings};
use crate::access::rules::Pattern;
use crate::built::HAS_MQTT;
use headwater_protocol::notice::is_node_name;
use headwater_protocol::xmpp::{Jid, JidError};
use std::path::PathBuf;
use std::time::Duration;

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
        "expected names of letters, digits, dots, dashes and underscores, separated by /".to_owned()
    })
}

/// Most patterns.
const PATTERNS_MAX: usize = 100;

/// Parses patterns with semicolons between.
fn patterns(text: &str) -> Result<Vec<Pattern>, String> {
    let all = text.split(';').map(str::trim);
    let all = all.filter(|pattern| !pattern.is_empty());
    let all = all.map(|pattern| pattern.parse::<Pattern>().map_err(|e| e.to_string()));
    let all: Vec<Pattern> = all.collect::<Result<_, _>>()?;
    match all.len() {
        0..=PATTERNS_MAX => Ok(all),
        count => Err(format!(
            "{count} patterns, at most {PATTERNS_MAX} are allowed"
        )),
    }
}

fn show_patterns(all: &[Pattern]) -> String {
    let all: Vec<String> = all.iter().map(ToString::to_string).collect();
    all.join("; ")
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
    server.ok_or_else(|| "expected the name of a server after xmpp://".to_owned())
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
        about: "How notices get from nodes to dispatchers: hub = dispatchers poll each node; mqtt, xmpp = nodes publish them to an MQTT broker, or to an XMPP server with publish-subscribe, and dispatchers query a node when its notice arrives.",
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
        allowed: "names separated by /, at most 200 bytes",
        about: "Prefix of the topics of notices, the same for all nodes that belong together.",
        codec: Codec::Own {
            set: |s, text| topic(text).map(|topic| s.notices.topic = topic),
            show: |s| s.notices.topic.clone(),
        },
    },
    Setting {
        key: "notices.check",
        kind: "DURATION",
        allowed: "1s to 1h",
        about: "How often a dispatcher queries a node that has sent no notice, in case one was lost.",
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
        about: "MQTT 5 broker or XMPP server that carries notices. Default ports of XMPP are 5222 and 5223; xmpp:// uses STARTTLS, which is required unless the server is on this machine.",
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
        about: "Domain of the publish-subscribe service of the XMPP server; empty = pubsub. before the domain of the account.",
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
        key: "notices.values",
        kind: "PATTERNS",
        allowed: "patterns as those of tokens, with semicolons between: `pump; weather,origin=E*`; or nothing",
        about: "Streams of this node whose newest values are published over the XMPP server, at most 1,024, each under a topic of its own. With notices.apply_lists also the streams of this node and of its edges that get a topic.",
        codec: Codec::Own {
            set: |s, text| patterns(text).map(|found| s.notices.values = found),
            show: |s| show_patterns(&s.notices.values),
        },
    },
    Setting {
        key: "notices.values_interval",
        kind: "DURATION",
        allowed: "100ms to 1h",
        about: "Interval of publishing newest values. Of the values of a stream within an interval, the newest ones are published.",
        codec: Codec::Own {
            set: |s, text| {
                let range = Duration::from_millis(100)..=Duration::from_secs(3600);
                s.notices.values_interval = duration_within(text, range)?;
                Ok(())
            },
            show: |s| show_duration(s.notices.values_interval),
        },
    },
    Setting {
        key: "notices.values_topic",
        kind: "TOPIC",
        allowed: "names separated by /, at most 200 bytes",
        about: "Prefix of the topics of streams, the same for all nodes that belong together.",
        codec: Codec::Own {
            set: |s, text| topic(text).map(|topic| s.notices.values_topic = topic),
            show: |s| s.notices.values_topic.clone(),
        },
    },
    Setting {
        key: "notices.hear_values",
        kind: SWITCH,
        allowed: "true or false",
        about: "Hear the newest values of all streams that the account of this node may hear at the XMPP server; GET /api/v1/notices/values answers with them.",
        codec: Codec::Own {
            set: |s, text| parse_switch(text).map(|on| s.notices.hears_values = on),
            show: |s| s.notices.hears_values.to_string(),
        },
    },
    Setting {
        key: "notices.rights",
        kind: SWITCH,
        allowed: "true or false",
        about: "At a cloud: publish its signed list of rights over the XMPP server, with notices.apply_lists. At an edge: take that list from there, so that revoked tokens and new signing keys reach it without a connection to its cloud.",
        codec: Codec::Own {
            set: |s, text| parse_switch(text).map(|on| s.notices.rights = on),
            show: |s| s.notices.rights.to_string(),
        },
    },
    Setting {
        key: "notices.rights_topic",
        kind: "TOPIC",
        allowed: "names separated by /, at most 200 bytes",
        about: "Prefix of the topics of lists of rights, the same for all nodes that belong together.",
        codec: Codec::Own {
            set: |s, text| topic(text).map(|topic| s.notices.rights_topic = topic),
            show: |s| s.notices.rights_topic.clone(),
        },
    },
    Setting {
        key: "notices.apply_lists",
        kind: SWITCH,
        allowed: "true or false",
        about: "Create the topics at the XMPP server, and apply there who may publish and hear, whenever the list of tokens changes: one node does this for all, usually the cloud. Its account must have the right to create nodes of publish-subscribe.",
        codec: Codec::Own {
            set: |s, text| parse_switch(text).map(|on| s.notices.applies_lists = on),
            show: |s| s.notices.applies_lists.to_string(),
        },
    },
    Setting {
        key: "notices.user",
        kind: "NAME",
        allowed: "a name, or nothing",
        about: "User name for the broker of notices; for XMPP the account, NAME@DOMAIN.",
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
        about: "File with the password for the broker of notices; a trailing line end is ignored. Read at each connection.",
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
        about: "Certificates of the authorities that may sign the certificate of the broker of notices; empty = those that the system trusts.",
        codec: Codec::Own {
            set: |s, text| {
                s.notices.login.ca = file(text);
                Ok(())
            },
            show: |s| shown(s.notices.login.ca.as_ref()),
        },
    },
];

/// True when topics under one prefix are topics under another.
fn are_overlapping(notices: &NoticeSettings) -> bool {
    let contains = |a: &str, b: &str| {
        let rest = b.strip_prefix(a);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let topic = &notices.topic;
    let (values, rights) = (&notices.values_topic, &notices.rights_topic);
    let mut pairs = [(topic, values), (topic, rights), (values, rights)].into_iter();
    pairs.any(|(a, b)| contains(a, b) || contains(b, a))
}

/// Checks across settings.
pub(super) fn together(settings: &Settings) -> Result<(), SettingError> {
    let notices = &settings.notices;
    let login = &notices.login;
    let bus = notices.bus;
    let role = settings.sync.role;
    let tells = role != NodeRole::Dispatcher;
    let is_account = |user: &str| user.parse::<Jid>().is_ok_and(|jid| !jid.local().is_empty());
    let has_tls = match &notices.xmpp {
        Some(_) => true,
        None => login.broker.as_ref().is_none_or(|broker| broker.tls),
    };
    let uses_values = !notices.values.is_empty()
        || notices.hears_values
        || notices.applies_lists
        || notices.rights;
    let fault = match bus {
        NoticeBus::Mqtt if !HAS_MQTT => {
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
            "notices.bus = mqtt or xmpp needs notices.name: the name of this node in notices"
        }
        NoticeBus::Hub | NoticeBus::Mqtt if uses_values => {
            "notices.values, notices.hear_values, notices.apply_lists and notices.rights need notices.bus = xmpp"
        }
        _ if !notices.values.is_empty() && !tells => {
            "a dispatcher has no values of its own: set notices.values at the nodes, and notices.hear_values here"
        }
        _ if notices.applies_lists && !tells => {
            "notices.apply_lists is for a node with streams, usually the cloud; set it there"
        }
        _ if notices.rights && !matches!(role, NodeRole::Cloud | NodeRole::Edge) => {
            "notices.rights is for a cloud, which publishes its list of rights, and for its edges"
        }
        _ if notices.rights && role == NodeRole::Cloud && !notices.applies_lists => {
            "notices.rights of a cloud needs notices.apply_lists: the topic of its list is created by it"
        }
        _ if are_overlapping(notices) => {
            "notices.topic, notices.values_topic and notices.rights_topic must differ, and none may contain another"
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
        if HAS_MQTT {
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
        let error_of = |settings: &Settings| together(settings).unwrap_err().to_string();
        assert!(error_of(&settings).contains("xmpp://HOST"));
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
            assert!(error_of(&settings).contains("NAME@DOMAIN"), "{user}");
        }
        settings.notices.login.user = "north@b.example".to_owned();
        assert!(error_of(&settings).contains("password_file"));
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
    fn values_go_over_xmpp_and_from_nodes_with_streams() {
        let mut settings = Settings::new("x");
        let error_of = |settings: &Settings| together(settings).unwrap_err().to_string();
        settings.notices.values = patterns("pump; weather,origin=E*;").unwrap();
        assert_eq!(
            show_patterns(&settings.notices.values),
            "pump; weather,origin=E*"
        );
        assert!(error_of(&settings).contains("notices.bus = xmpp"));
        settings.notices.bus = NoticeBus::Xmpp;
        settings.notices.name = "north".to_owned();
        settings.notices.login.user = "north@b.example".to_owned();
        settings.notices.login.password_file = file("x");
        set_broker(&mut settings, "xmpp://b").unwrap();
        assert!(together(&settings).is_ok());
        for same in ["headwater/notices", "headwater/notices/x", "headwater"] {
            settings.notices.values_topic = same.to_owned();
            assert!(
                error_of(&settings).contains("notices.values_topic"),
                "{same}"
            );
        }
        settings.notices.values_topic = "headwater/noticesx".to_owned();
        assert!(together(&settings).is_ok());
        settings.sync.role = NodeRole::Dispatcher;
        assert!(error_of(&settings).contains("notices.hear_values"));
        settings.notices.values.clear();
        settings.notices.hears_values = true;
        assert!(together(&settings).is_ok());
        settings.notices.rights = true;
        assert!(error_of(&settings).contains("notices.rights is for"));
        settings.sync.role = NodeRole::Cloud;
        assert!(error_of(&settings).contains("needs notices.apply_lists"));
        settings.notices.applies_lists = true;
        assert!(together(&settings).is_ok());
        settings.notices.rights_topic = "headwater/noticesx/y".to_owned();
        assert!(error_of(&settings).contains("notices.rights_topic"));
        (settings.notices.rights, settings.sync.role) = (false, NodeRole::Dispatcher);
        assert!(error_of(&settings).contains("notices.apply_lists"));
        assert!(patterns("pump,x").is_err());
        assert!(patterns(&"a;".repeat(PATTERNS_MAX + 1)).is_err());
    }

    #[test]
    fn topics_are_names() {
        assert_eq!(topic("a/b.c").unwrap(), "a/b.c");
        for text in ["", "/", "a/", "a/+", "#", "a b", &"a".repeat(201)] {
            assert!(topic(text).is_err(), "{text}");
        }
    }
}
