//! Settings of the MQTT subscriber.
//!
//! The connection is configured with ordinary settings; the meaning of topics is a list,
//! `[[mqtt.subscription]]`, which is allowed only in the file ([`super::subscription`]).

use super::setting::{Codec, Setting, duration_within, size_within, within};
use super::subscription::Subscription;
use super::values::{parse_count, show_duration, show_size};
use super::{Broker, BrokerLogin, Secret, SettingError, Settings};
use crate::built::HAS_MQTT;
use std::path::PathBuf;
use std::time::Duration;

/// Longest time that MQTT expresses in seconds, which stands for no limit.
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Broker, and the meaning of its messages.
#[derive(Debug, Clone)]
pub struct Mqtt {
    /// Login at the broker; without a broker, reception is off.
    pub login: BrokerLogin,
    /// Maximum bytes of unacknowledged messages.
    pub bytes_max: usize,
    /// Meaning of topics, in order: the first match counts.
    pub subscriptions: Vec<Subscription>,
}

impl Default for Mqtt {
    fn default() -> Mqtt {
        Mqtt {
            login: BrokerLogin::default(),
            bytes_max: 32 << 20,
            subscriptions: Vec::new(),
        }
    }
}

pub(super) static TABLE: &[Setting] = &[
    Setting {
        key: "mqtt.broker",
        kind: "URL",
        allowed: "mqtt://HOST[:PORT], or mqtts://HOST[:PORT] for TLS; or nothing",
        about: "MQTT 5 broker to receive messages from; `[[mqtt.subscription]]` in the file maps their topics to tables. Default ports are 1883 and 8883.",
        codec: Codec::Own {
            set: |s, text| {
                s.mqtt.login.broker = broker(text)?;
                Ok(())
            },
            show: |s| {
                s.mqtt
                    .login
                    .broker
                    .as_ref()
                    .map_or_else(String::new, Broker::to_string)
            },
        },
    },
    Setting {
        key: "mqtt.client_id",
        kind: "NAME",
        allowed: "1 to 65535 bytes, or nothing",
        about: "Client ID of this server at the broker. It must be unique and must not change, or messages queued for this server are lost.",
        codec: Codec::Own {
            set: |s, text| {
                if text.len() > 65_535 {
                    return Err("too long".to_owned());
                }
                text.clone_into(&mut s.mqtt.login.client_id);
                Ok(())
            },
            show: |s| s.mqtt.login.client_id.clone(),
        },
    },
    Setting {
        key: "mqtt.user",
        kind: "NAME",
        allowed: "a name, or nothing",
        about: "User name for the broker.",
        codec: Codec::Own {
            set: |s, text| {
                text.clone_into(&mut s.mqtt.login.user);
                Ok(())
            },
            show: |s| s.mqtt.login.user.clone(),
        },
    },
    Setting {
        key: "mqtt.password",
        kind: "TEXT",
        allowed: "a password, or nothing",
        about: "Password for the broker. Other users of this machine can see the flags of a process, so a file is safer.",
        codec: Codec::Own {
            set: |s, text| {
                s.mqtt.login.password = Secret::new(text);
                Ok(())
            },
            show: |s| match s.mqtt.login.password.reveal() {
                "" => String::new(),
                _ => "(hidden)".to_owned(),
            },
        },
    },
    Setting {
        key: "mqtt.password_file",
        kind: "FILE",
        allowed: "a file, or nothing",
        about: "File with the password; a trailing line end is ignored. Read at each connection.",
        codec: Codec::Own {
            set: |s, text| {
                s.mqtt.login.password_file = file(text);
                Ok(())
            },
            show: |s| shown(s.mqtt.login.password_file.as_ref()),
        },
    },
    Setting {
        key: "mqtt.ca",
        kind: "FILE",
        allowed: "a file in PEM, or nothing",
        about: "Certificates of the authorities that may sign the broker's certificate; empty = those that the system trusts.",
        codec: Codec::Own {
            set: |s, text| {
                s.mqtt.login.ca = file(text);
                Ok(())
            },
            show: |s| shown(s.mqtt.login.ca.as_ref()),
        },
    },
    Setting {
        key: "mqtt.cert",
        kind: "FILE",
        allowed: "a file in PEM, or nothing",
        about: "Client certificate for brokers that require one; `mqtt.key` is its key.",
        codec: Codec::Own {
            set: |s, text| {
                s.mqtt.login.cert = file(text);
                Ok(())
            },
            show: |s| shown(s.mqtt.login.cert.as_ref()),
        },
    },
    Setting {
        key: "mqtt.key",
        kind: "FILE",
        allowed: "a file in PEM, or nothing",
        about: "Private key of `mqtt.cert`.",
        codec: Codec::Own {
            set: |s, text| {
                s.mqtt.login.key = file(text);
                Ok(())
            },
            show: |s| shown(s.mqtt.login.key.as_ref()),
        },
    },
    Setting {
        key: "mqtt.keep_alive",
        kind: "DURATION",
        allowed: "5s to 18h",
        about: "Keep-alive interval of the connection to the broker.",
        codec: Codec::Own {
            set: |s, text| {
                let range = Duration::from_secs(5)..=Duration::from_secs(18 * 3600);
                duration_within(text, range).map(|d| s.mqtt.login.keep_alive = d)
            },
            show: |s| show_duration(s.mqtt.login.keep_alive),
        },
    },
    Setting {
        key: "mqtt.session_expiry",
        kind: "DURATION",
        allowed: "1s to 49710d, or never",
        about: "How long the broker queues messages for this server while it is disconnected, as far as the broker allows.",
        codec: Codec::Own {
            set: |s, text| {
                s.mqtt.login.session_expiry = match text {
                    "never" => FOR_EVER,
                    _ => duration_within(text, Duration::from_secs(1)..=FOR_EVER)?,
                };
                Ok(())
            },
            show: |s| match s.mqtt.login.session_expiry {
                FOR_EVER => "never".to_owned(),
                time => show_duration(time),
            },
        },
    },
    Setting {
        key: "mqtt.receive_max",
        kind: "N",
        allowed: "1 to 65535",
        about: "Most unacknowledged messages of QoS 1 that the broker may send.",
        codec: Codec::Own {
            set: |s, text| {
                within(parse_count(text)?, 1..=u16::MAX).map(|n| s.mqtt.login.receive_max = n)
            },
            show: |s| s.mqtt.login.receive_max.to_string(),
        },
    },
    Setting {
        key: "mqtt.packet_max",
        kind: "SIZE",
        allowed: "1KiB to 256MiB",
        about: "Largest message, topic included. A broker drops larger ones for this server.",
        codec: Codec::Own {
            set: |s, text| {
                size_within(text, 1 << 10..=256 << 20).map(|n| s.mqtt.login.packet_max = n)
            },
            show: |s| show_size(s.mqtt.login.packet_max as u64),
        },
    },
    Setting {
        key: "mqtt.bytes_max",
        kind: "SIZE",
        allowed: "64KiB to 64GiB",
        about: "Most bytes of messages in memory that are not stored yet; beyond it no more are read. At least `mqtt.packet_max` is used.",
        codec: Codec::Own {
            set: |s, text| size_within(text, 64 << 10..=64 << 30).map(|n| s.mqtt.bytes_max = n),
            show: |s| show_size(s.mqtt.bytes_max as u64),
        },
    },
];

fn file(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

fn shown(path: Option<&PathBuf>) -> String {
    path.map_or_else(String::new, |path| path.display().to_string())
}

pub(super) fn broker(text: &str) -> Result<Option<Broker>, String> {
    let is_secured = text.starts_with("mqtts:") || text.starts_with("ssl:");
    broker_or(text, if is_secured { 8883 } else { 1883 })
}

/// As [`broker`], with a default port.
pub(super) fn broker_or(text: &str, port_else: u16) -> Result<Option<Broker>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let expected = || "expected an address such as mqtt://broker.example:1883".to_owned();
    let (scheme, rest) = text.split_once("://").ok_or_else(expected)?;
    let tls = match scheme {
        "mqtt" | "tcp" => false,
        "mqtts" | "ssl" => true,
        _ => return Err(expected()),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains(['@', '/', '?', '#']) {
        return Err(
            "expected only host and port: user and password have their own settings".to_owned(),
        );
    }
    // A colon inside brackets belongs to the address.
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (rest, None),
    };
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let is_host = match bare {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && !host.contains([':', '[', ']', ' ']),
    };
    if !is_host {
        return Err(expected());
    }
    if tls && bare.is_some() {
        return Err("TLS needs the name of the broker, or an IPv4 address".to_owned());
    }
    let port = match port {
        None => port_else,
        Some(port) => port
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(expected)?,
    };
    Ok(Some(Broker {
        tls,
        host: host.to_owned(),
        port,
    }))
}

/// Checks across settings.
pub(super) fn together(settings: &Settings) -> Result<(), SettingError> {
    let mqtt = &settings.mqtt;
    let error = |text: &str| Err(SettingError::Together(text.to_owned()));
    if mqtt.login.cert.is_some() != mqtt.login.key.is_some() {
        return error("mqtt.cert and mqtt.key go together: set both, or none");
    }
    if !mqtt.login.password.reveal().is_empty() && mqtt.login.password_file.is_some() {
        return error("mqtt.password and mqtt.password_file exclude each other: set one of them");
    }
    let has_password =
        !mqtt.login.password.reveal().is_empty() || mqtt.login.password_file.is_some();
    if has_password && mqtt.login.user.is_empty() {
        return error("a password for the broker needs mqtt.user too");
    }
    let Some(broker) = &mqtt.login.broker else {
        return match mqtt.subscriptions.is_empty() {
            true => Ok(()),
            false => error(
                "[[mqtt.subscription]] needs mqtt.broker: the address to receive messages from",
            ),
        };
    };
    if !HAS_MQTT {
        return error(
            "mqtt.broker is set, and this program was built without MQTT: build it with the feature mqtt",
        );
    }
    if mqtt.login.client_id.is_empty() {
        return error(
            "mqtt.broker needs mqtt.client_id: a name of this server's session that is unique at the broker and does not change",
        );
    }
    if mqtt.subscriptions.is_empty() {
        return error(
            "mqtt.broker needs at least one [[mqtt.subscription]] in the settings file, which says what topics mean",
        );
    }
    if !broker.tls && (mqtt.login.ca.is_some() || mqtt.login.cert.is_some()) {
        return error("mqtt.ca and mqtt.cert are for TLS: write mqtts:// in mqtt.broker");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn addresses_of_brokers() {
        for (text, shown) in [
            ("mqtt://broker", "mqtt://broker:1883"),
            ("mqtts://broker.example/", "mqtts://broker.example:8883"),
            ("tcp://10.0.0.1:1884", "mqtt://10.0.0.1:1884"),
            ("mqtt://[::1]", "mqtt://[::1]:1883"),
            ("mqtt://[::1]:1884", "mqtt://[::1]:1884"),
        ] {
            assert_eq!(broker(text).unwrap().unwrap().to_string(), shown);
        }
        for text in [
            "broker",
            "http://x",
            "mqtt://",
            "mqtt://x:0",
            "mqtt://x:y",
            "mqtt://::1",
            "mqtt://u:p@x",
            "mqtts://[::1]",
        ] {
            assert!(broker(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let mut settings = Settings::new("x");
        settings.mqtt.login.password = Secret::new("open sesame");
        assert!(!format!("{settings:?}").contains("sesame"));
        for setting in TABLE {
            assert!(!setting.value(&settings).contains("sesame"));
        }
    }
}
