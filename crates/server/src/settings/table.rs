//! Table of settings: one entry for each, with all its texts.

use super::Apart;
use super::setting::{
    Codec, SWITCH, Setting, duration_within, or_never, show_or_never, size_within, within,
};
use super::values::{parse_count, parse_switch, show_duration, show_size};
use super::{
    LogFormat, LogRequests, cloud, dispatch, engine, lake, mqtt, notices, rights, sync, watch,
};
use crate::built::HAS_SQL;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Every setting, in the order of the page.
pub fn table() -> impl Iterator<Item = &'static Setting> + Clone {
    SERVER
        .iter()
        .chain(sync::TABLE)
        .chain(rights::TABLE)
        .chain(cloud::TABLE)
        .chain(dispatch::TABLE)
        .chain(notices::TABLE)
        .chain(mqtt::TABLE)
        .chain(watch::TABLE)
        .chain(lake::TABLE)
        .chain(engine::TABLE.iter())
}

static SERVER: &[Setting] = &[
    Setting {
        key: "db",
        kind: "DIR",
        allowed: "a directory; created if it does not exist",
        about: "Directory of the database.",
        codec: Codec::Own {
            set: |s, text| {
                if text.is_empty() {
                    return Err("the name of the directory is empty".to_owned());
                }
                s.engine.dir = PathBuf::from(text);
                Ok(())
            },
            show: |s| s.engine.dir.display().to_string(),
        },
    },
    Setting {
        key: "http_addr",
        kind: "ADDR:PORT",
        allowed: "an IP address and a port; port 0 takes any free one",
        about: "Where to listen. Other addresses than those of this machine need tokens and TLS, see `allow_open` and `allow_plaintext`.",
        codec: Codec::Own {
            set: |s, text| {
                s.http_addr = text.parse::<SocketAddr>().map_err(|_| {
                    "expected an address and a port, such as 127.0.0.1:7373 or [::1]:7373"
                        .to_owned()
                })?;
                Ok(())
            },
            show: |s| s.http_addr.to_string(),
        },
    },
    Setting {
        key: "allow_open",
        kind: SWITCH,
        allowed: "true or false",
        about: "Serve other machines although there are no tokens: every client that reaches the port can read and write everything.",
        codec: Codec::Own {
            set: |s, text| parse_switch(text).map(|on| s.allow_open = on),
            show: |s| s.allow_open.to_string(),
        },
    },
    Setting {
        key: "allow_plaintext",
        kind: SWITCH,
        allowed: "true or false",
        about: "Serve other machines without TLS: anyone on the network path reads tokens and data. For use behind a proxy that does TLS.",
        codec: Codec::Own {
            set: |s, text| parse_switch(text).map(|on| s.allow_plaintext = on),
            show: |s| s.allow_plaintext.to_string(),
        },
    },
    Setting {
        key: "hosts",
        kind: "NAME,…",
        allowed: "host names or addresses without port, separated by commas",
        about: "Names under which requests without a token are answered, besides those of this machine (protection from DNS rebinding). With tokens any name is accepted.",
        codec: Codec::Own {
            set: |s, text| {
                let names = text
                    .split(',')
                    .map(str::trim)
                    .filter(|name| !name.is_empty());
                s.hosts = names.map(str::to_owned).collect();
                match s.hosts.iter().find(|name| name.contains(['/', '@', ' '])) {
                    Some(name) => Err(format!("`{name}` is not a host name")),
                    None => Ok(()),
                }
            },
            show: |s| s.hosts.join(","),
        },
    },
    Setting {
        key: "cors.origins",
        kind: "ORIGIN,…",
        allowed: "origins such as https://board.example:3000, separated by commas",
        about: "Origins whose pages, in a browser, may query this server and read its answers (CORS). Their token decides what they may do.",
        codec: Codec::Own {
            set: |s, text| {
                let origins = text
                    .split(',')
                    .map(str::trim)
                    .filter(|origin| !origin.is_empty());
                s.cors_origins = origins
                    .map(headwater_shell::parse_origin)
                    .collect::<Result<_, _>>()?;
                Ok(())
            },
            show: |s| s.cors_origins.join(","),
        },
    },
    Setting {
        key: "read_only",
        kind: SWITCH,
        allowed: "true or false",
        about: "Answer queries and refuse every change, whatever a token allows. The database is opened without a lock and no file is written: its device may be read-only, and its owner may run at the same time. An edge or a cloud is opened as its owner nevertheless.",
        codec: Codec::Own {
            set: |s, text| parse_switch(text).map(|on| s.read_only = on),
            show: |s| s.read_only.to_string(),
        },
    },
    Setting {
        key: "read_only.refresh",
        kind: "DURATION",
        allowed: "100ms to 1d, or never",
        about: "How often a server with read_only looks for changes that the owner of its database made: all metadata and the log are read each time, and caches start empty. With `never` it shows the state at its start.",
        codec: Codec::Own {
            set: |s, text| {
                let range = Duration::from_millis(100)..=Duration::from_secs(86_400);
                or_never(text, range).map(|found| s.read_only_refresh = found)
            },
            show: |s| show_or_never(s.read_only_refresh),
        },
    },
    Setting {
        key: "tier.fast",
        kind: "DIR",
        allowed: "a directory, or nothing",
        about: "Directory of a fast tier, on a small fast device beside that of the database: used from the start on. Empty = as the database has it.",
        codec: Codec::Own {
            set: |s, text| {
                s.engine.fast_dir = (!text.is_empty()).then(|| PathBuf::from(text));
                Ok(())
            },
            show: |s| path(s.engine.fast_dir.as_ref()),
        },
    },
    Setting {
        key: "tier.parts",
        kind: "PART,…",
        allowed: "log, pins, index, newest, or several, separated by commas",
        about: "What is stored in tier.fast: the commit log, rows that memory has no room for, a copy of the index of segments, copies of the newest partitions.",
        codec: Codec::Own {
            set: |s, text| {
                s.engine.fast_parts = text
                    .parse()
                    .map_err(|error: headwater::Error| error.to_string())?;
                Ok(())
            },
            show: |s| s.engine.fast_parts.to_string(),
        },
    },
    Setting {
        key: "tls.cert",
        kind: "FILE",
        allowed: "a file, or nothing",
        about: "Certificate chain of TLS in PEM, the server's own first. Read again on SIGHUP and when the file changes.",
        codec: Codec::Own {
            set: |s, text| {
                s.tls_cert = (!text.is_empty()).then(|| PathBuf::from(text));
                Ok(())
            },
            show: |s| path(s.tls_cert.as_ref()),
        },
    },
    Setting {
        key: "tls.key",
        kind: "FILE",
        allowed: "a file, or nothing",
        about: "Private key of the certificate in PEM.",
        codec: Codec::Own {
            set: |s, text| {
                s.tls_key = (!text.is_empty()).then(|| PathBuf::from(text));
                Ok(())
            },
            show: |s| path(s.tls_key.as_ref()),
        },
    },
    Setting {
        key: "tls.next_ca",
        kind: "FILE",
        allowed: "a file in PEM, or nothing",
        about: "Certificates by which the next certificate of a cloud is going to be verified: itself, or those that sign it. Edges that verify the cloud by certificates of their own are told of them, and trust both from then on. Read again when the file changes.",
        codec: Codec::Own {
            set: |s, text| {
                s.tls_next_ca = (!text.is_empty()).then(|| PathBuf::from(text));
                Ok(())
            },
            show: |s| path(s.tls_next_ca.as_ref()),
        },
    },
    Setting {
        key: "body_max",
        kind: "SIZE",
        allowed: "1KiB to 1GiB",
        about: "Largest body of a request, after decompression. Larger ones are answered 413.",
        codec: Codec::Own {
            set: |s, text| size_within(text, 1 << 10..=1 << 30).map(|n| s.body_max = n),
            show: |s| show_size(s.body_max as u64),
        },
    },
    Setting {
        key: "connections_max",
        kind: "N",
        allowed: "1 to 1000000",
        about: "Most connections at once. More wait until one ends.",
        codec: Codec::Own {
            set: |s, text| within(parse_count(text)?, 1..=1_000_000).map(|n| s.connections_max = n),
            show: |s| s.connections_max.to_string(),
        },
    },
    Setting {
        key: "request.max",
        kind: "N",
        allowed: "1 to 1000000",
        about: "Most requests worked on at once; more are answered 503. Health and metrics do not count.",
        codec: Codec::Own {
            set: |s, text| within(parse_count(text)?, 1..=1_000_000).map(|n| s.requests_max = n),
            show: |s| s.requests_max.to_string(),
        },
    },
    Setting {
        key: "request.timeout",
        kind: "DURATION",
        allowed: "1ms to 1h",
        about: "Maximum time from receiving the headers of a request to sending those of its answer; a slower request is answered 503.",
        codec: Codec::Own {
            set: |s, text| {
                duration_within(text, Duration::from_millis(1)..=HOUR)
                    .map(|d| s.request_timeout = d)
            },
            show: |s| show_duration(s.request_timeout),
        },
    },
    Setting {
        key: "request.header_timeout",
        kind: "DURATION",
        allowed: "100ms to 1h",
        about: "Longest time until the head of the next request arrives, and for the TLS handshake; then the connection is closed.",
        codec: Codec::Own {
            set: |s, text| {
                duration_within(text, Duration::from_millis(100)..=HOUR)
                    .map(|d| s.header_timeout = d)
            },
            show: |s| show_duration(s.header_timeout),
        },
    },
    Setting {
        key: "shutdown_timeout",
        kind: "DURATION",
        allowed: "1ms to 1h",
        about: "How long requests may take to end after SIGTERM or SIGINT; then they are cut off. What was acknowledged is stored in any case.",
        codec: Codec::Own {
            set: |s, text| {
                duration_within(text, Duration::from_millis(1)..=HOUR)
                    .map(|d| s.shutdown_timeout = d)
            },
            show: |s| show_duration(s.shutdown_timeout),
        },
    },
    Setting {
        key: "write.line_max",
        kind: "SIZE",
        allowed: "64 to 64MiB",
        about: "Maximum length of a line of line protocol. Longer lines are refused; the other lines of the request are stored.",
        codec: Codec::Own {
            set: |s, text| size_within(text, 64..=64 << 20).map(|n| s.write_line_max = n),
            show: |s| show_size(s.write_line_max as u64),
        },
    },
    Setting {
        key: "tile_cache",
        kind: "SIZE",
        allowed: "64KiB to 64GiB",
        about: "Memory for formatted tiles, cached until their data changes.",
        codec: Codec::Own {
            set: |s, text| size_within(text, 64 << 10..=64 << 30).map(|n| s.tile_cache = n),
            show: |s| show_size(s.tile_cache as u64),
        },
    },
    Setting {
        key: "write.database",
        kind: "NAME",
        allowed: "a name, or nothing",
        about: "The one name of a database or bucket that writes may give; others are answered 404. Without it there may be [several](../http/influxql.md#databases).",
        codec: Codec::Own {
            set: |s, text| {
                s.write_database = (!text.is_empty()).then(|| text.to_owned());
                Ok(())
            },
            show: |s| s.write_database.clone().unwrap_or_default(),
        },
    },
    Setting {
        key: "write.databases",
        kind: "WAY",
        allowed: "auto, apart or together",
        about: "`apart`: each name of a database or bucket stands for measurements of its own; `together`: all names mean the same tables. `auto` is `apart` for databases created since this setting exists, and `together` for older ones.",
        codec: Codec::Own {
            set: |s, text| {
                s.write_databases =
                    Apart::named(text).ok_or_else(|| "not one of the three".to_owned())?;
                Ok(())
            },
            show: |s| s.write_databases.name().to_owned(),
        },
    },
    Setting {
        key: "write.queue_max",
        kind: "N",
        allowed: "1 to 1000000",
        about: "Most writes that wait for a thread; more are answered 503.",
        codec: Codec::Own {
            set: |s, text| within(parse_count(text)?, 1..=1_000_000).map(|n| s.write_queue_max = n),
            show: |s| s.write_queue_max.to_string(),
        },
    },
    Setting {
        key: "write.bytes_max",
        kind: "SIZE",
        allowed: "1KiB to 64GiB",
        about: "Maximum total size of the bodies of write requests in memory; further writes are answered 429. A value below `body_max` counts as `body_max`.",
        codec: Codec::Own {
            set: |s, text| size_within(text, 1 << 10..=64 << 30).map(|n| s.write_bytes_max = n),
            show: |s| show_size(s.write_bytes_max as u64),
        },
    },
    Setting {
        key: "write.threads",
        kind: "N",
        allowed: "0 to 256",
        about: "Threads that parse and submit writes; 0 = one for each processor.",
        codec: Codec::Own {
            set: |s, text| within(parse_count(text)?, 0..=256).map(|n| s.write_threads = n),
            show: |s| s.write_threads.to_string(),
        },
    },
    Setting {
        key: "live.clients_max",
        kind: "N",
        allowed: "1 to 100000",
        about: "Most clients that follow new data at once; more are answered 503.",
        codec: Codec::Own {
            set: |s, text| within(parse_count(text)?, 1..=100_000).map(|n| s.live_clients_max = n),
            show: |s| s.live_clients_max.to_string(),
        },
    },
    Setting {
        key: "query.memory",
        kind: "SIZE",
        allowed: "1MiB to 1024GiB",
        about: "Memory that one query of InfluxQL or OpenTSDB may use for its answer and intermediate results; a query that needs more fails.",
        codec: Codec::Own {
            set: |s, text| size_within(text, 1 << 20..=1 << 40).map(|n| s.query_memory = n),
            show: |s| show_size(u64::try_from(s.query_memory).unwrap_or(u64::MAX)),
        },
    },
    Setting {
        key: "query.memory_all",
        kind: "SIZE",
        allowed: "1MiB to 1024GiB",
        about: "Memory that all these queries may use together; one that finds none left is answered 503.",
        codec: Codec::Own {
            set: |s, text| size_within(text, 1 << 20..=1 << 40).map(|n| s.query_memory_all = n),
            show: |s| show_size(u64::try_from(s.query_memory_all).unwrap_or(u64::MAX)),
        },
    },
    Setting {
        key: "sql.memory",
        kind: "SIZE",
        allowed: "1MiB to 1024GiB",
        about: "Memory that one statement of SQL may use to sort, group and join; 64 MiB more for rows in transit.",
        codec: Codec::Own {
            set: |s, text| size_within(text, 1 << 20..=1 << 40).map(|n| s.sql_memory = n),
            show: |s| show_size(s.sql_memory as u64),
        },
    },
    Setting {
        key: "sql.memory_all",
        kind: "SIZE",
        allowed: "1MiB to 1024GiB",
        about: "Memory that all statements may use together. The whole server uses at most the sum of memory_budget, this and 512 MiB.",
        codec: Codec::Own {
            set: |s, text| size_within(text, 1 << 20..=1 << 40).map(|n| s.sql_memory_all = n),
            show: |s| show_size(s.sql_memory_all as u64),
        },
    },
    Setting {
        key: "sql.timeout",
        kind: "DURATION",
        allowed: "1ms to 1d",
        about: "Longest time of a statement, the reading of its rows included. Over HTTP its first rows must come within request.timeout too.",
        codec: Codec::Own {
            set: |s, text| {
                duration_within(text, Duration::from_millis(1)..=Duration::from_secs(86_400))
                    .map(|d| s.sql_timeout = d)
            },
            show: |s| show_duration(s.sql_timeout),
        },
    },
    Setting {
        key: "sql.statements_max",
        kind: "N",
        allowed: "1 to 10000",
        about: "Most statements at once; more are answered 503.",
        codec: Codec::Own {
            set: |s, text| within(parse_count(text)?, 1..=10_000).map(|n| s.sql_statements_max = n),
            show: |s| s.sql_statements_max.to_string(),
        },
    },
    Setting {
        key: "postgres.addr",
        kind: "ADDR:PORT",
        allowed: "an IP address and a port, or nothing; port 0 takes any free one",
        about: "Where to listen for psql, drivers and other clients of PostgreSQL; empty = nowhere. Other addresses than those of this machine need tokens and TLS, as for `http_addr`. Not in programs built without `sql`.",
        codec: Codec::Own {
            set: |s, text| {
                s.postgres_addr = match text {
                    "" => None,
                    text if !HAS_SQL => {
                        return Err(format!(
                            "this program was built without SQL, so nothing can listen at {text}"
                        ));
                    }
                    text => Some(text.parse::<SocketAddr>().map_err(|_| {
                        "expected an address and a port, such as 127.0.0.1:5432 or [::1]:5432"
                            .to_owned()
                    })?),
                };
                Ok(())
            },
            show: |s| {
                s.postgres_addr
                    .map(|addr| addr.to_string())
                    .unwrap_or_default()
            },
        },
    },
    Setting {
        key: "postgres.connections_max",
        kind: "N",
        allowed: "1 to 100000",
        about: "Most connections of PostgreSQL's clients at once; more are refused.",
        codec: Codec::Own {
            set: |s, text| {
                within(parse_count(text)?, 1..=100_000).map(|n| s.postgres_connections_max = n)
            },
            show: |s| s.postgres_connections_max.to_string(),
        },
    },
    Setting {
        key: "postgres.startup_timeout",
        kind: "DURATION",
        allowed: "100ms to 1h",
        about: "Longest time from a connection of PostgreSQL's clients to its session, TLS and password included; then it is closed.",
        codec: Codec::Own {
            set: |s, text| {
                duration_within(text, Duration::from_millis(100)..=HOUR)
                    .map(|d| s.postgres_startup_timeout = d)
            },
            show: |s| show_duration(s.postgres_startup_timeout),
        },
    },
    Setting {
        key: "postgres.idle_timeout",
        kind: "DURATION",
        allowed: "1s to 7d",
        about: "Idle time after which a PostgreSQL session is closed: no message sent, or nothing read of an answer.",
        codec: Codec::Own {
            set: |s, text| {
                duration_within(text, SECOND..=Duration::from_secs(7 * 86_400))
                    .map(|d| s.postgres_idle_timeout = d)
            },
            show: |s| show_duration(s.postgres_idle_timeout),
        },
    },
    Setting {
        key: "log.level",
        kind: "LEVEL",
        allowed: "error, warn, info, debug, trace, off; or directives such as info,headwater_engine=debug",
        about: "Which messages are logged. The variable HEADWATER_LOG, if set, takes precedence.",
        codec: Codec::Own {
            set: |s, text| {
                headwater_shell::logging::check_level(text)?;
                s.log_level = text.to_owned();
                Ok(())
            },
            show: |s| s.log_level.clone(),
        },
    },
    Setting {
        key: "log.format",
        kind: "FORMAT",
        allowed: "text or json",
        about: "How messages are written to stderr. Times are UTC with milliseconds.",
        codec: Codec::Own {
            set: |s, text| {
                s.log_format = match text {
                    "text" => LogFormat::Text,
                    "json" => LogFormat::Json,
                    _ => return Err("not a format".to_owned()),
                };
                Ok(())
            },
            show: |s| match s.log_format {
                LogFormat::Text => "text".to_owned(),
                LogFormat::Json => "json".to_owned(),
            },
        },
    },
    Setting {
        key: "log.requests",
        kind: "WHICH",
        allowed: "none, failed or all",
        about: "Which requests are logged; failed are those with status 500 and above, and those over a second.",
        codec: Codec::Own {
            set: |s, text| {
                s.log_requests = match text {
                    "none" => LogRequests::None,
                    "failed" => LogRequests::Failed,
                    "all" => LogRequests::All,
                    _ => return Err("not one of the three".to_owned()),
                };
                Ok(())
            },
            show: |s| match s.log_requests {
                LogRequests::None => "none".to_owned(),
                LogRequests::Failed => "failed".to_owned(),
                LogRequests::All => "all".to_owned(),
            },
        },
    },
];

fn path(path: Option<&PathBuf>) -> String {
    path.map_or_else(String::new, |path| path.display().to_string())
}
