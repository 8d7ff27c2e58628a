//! What is asked, of every route there is.

use super::world::{Request, SECRET};
use crate::prometheus::{packed, series};

/// What of something is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject {
    pub(super) table: &'static str,
    pub(super) stream: &'static str,
    pub(super) field: &'static str,
    pub(super) key: &'static str,
    pub(super) value: &'static str,
}

/// What may be seen, what one of the worlds has, and what neither has.
pub(super) const SUBJECTS: [Subject; 8] = [
    Subject {
        table: "cars",
        stream: "cars,id=seen,site=north",
        field: "v",
        key: "id",
        value: "seen",
    },
    Subject {
        table: "boats",
        stream: "boats,id=b",
        field: "value",
        key: "id",
        value: "b",
    },
    // A stream of a table that may be seen.
    Subject {
        table: "cars",
        stream: "cars,id=zzsecretid,site=south,zzsecretkey=zzsecretval",
        field: "zzsecretfield",
        key: "zzsecretkey",
        value: "zzsecretval",
    },
    // A number, and a text, that only such a stream has, asked of one that may be seen.
    Subject {
        table: "cars",
        stream: "cars,id=seen,site=north",
        field: "zzsecretfield",
        key: "zzsecretkey",
        value: "zzsecretid",
    },
    Subject {
        table: "cars",
        stream: "cars,id=seen,site=north",
        field: "zzsecrettext",
        key: "site",
        value: "south",
    },
    // A field without a secret in its name.
    Subject {
        table: "gauges",
        stream: "gauges,id=g,site=north",
        field: "value",
        key: "id",
        value: "zzsecretg",
    },
    Subject {
        table: "zzsecrets",
        stream: "zzsecrets,site=south,zzsecretkey=zzsecretval",
        field: "zzsecretfield",
        key: "zzsecretkey",
        value: "zzsecretval",
    },
    Subject {
        table: "zzabsent",
        stream: "zzabsent,id=zzabsent",
        field: "zzabsent",
        key: "zzabsent",
        value: "zzabsent",
    },
];

impl Subject {
    /// A text with `{T}`, `{S}`, `{F}`, `{K}` and `{V}` for table, stream, field, key and value.
    pub(super) fn fill(&self, text: &str) -> String {
        text.replace("{T}", self.table)
            .replace("{S}", self.stream)
            .replace("{F}", self.field)
            .replace("{K}", self.key)
            .replace("{V}", self.value)
    }
}

/// What a route's answers tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reveals {
    /// Of what is stored: who may see everything is told different things in the two worlds.
    Stored,
    /// Whether a write fits what is stored.
    Fits,
    /// Figures of all that is stored, without names.
    Totals,
    /// Nothing of what is stored.
    Nothing,
}

/// A route: its method and path as the list of routes has them, and what it is asked. Of a text
/// with a line feed the rest is the body.
pub(super) struct Row {
    pub(super) method: &'static str,
    pub(super) route: &'static str,
    pub(super) reveals: Reveals,
    pub(super) requests: &'static [&'static str],
}

const fn row(
    method: &'static str,
    route: &'static str,
    reveals: Reveals,
    requests: &'static [&'static str],
) -> Row {
    Row {
        method,
        route,
        reveals,
        requests,
    }
}

/// Every route.
pub(super) const ROWS: &[Row] = &[
    row(
        "GET",
        "/api/query",
        Reveals::Stored,
        &[
            "/api/query?start=2023/11/14&end=2023/11/16&m=none:{T}",
            "/api/query?start=2023/11/14&end=2023/11/16&m=sum:{T}{{K}=*}",
            "/api/query?start=2023/11/14&end=2023/11/16&m=max:{T}{{K}={V}}",
        ],
    ),
    row(
        "POST",
        "/api/query",
        Reveals::Stored,
        &[
            "/api/query\n{\"start\":\"2023/11/14\",\"end\":\"2023/11/16\",\"queries\":[{\"metric\":\"{T}\",\"aggregator\":\"none\"}]}",
        ],
    ),
    row(
        "GET",
        "/api/suggest",
        Reveals::Stored,
        &[
            "/api/suggest?type=metrics",
            "/api/suggest?type=metrics&q={T}",
            "/api/suggest?type=tagk&max=1",
            "/api/suggest?type=tagk&q={K}",
            "/api/suggest?type=tagv&q={V}&max=2",
        ],
    ),
    row(
        "GET",
        "/api/search/lookup",
        Reveals::Stored,
        &[
            "/api/search/lookup?m={T}{{K}=*}",
            "/api/search/lookup?m={T}&limit=1",
        ],
    ),
    row(
        "GET",
        "/api/v1/streams",
        Reveals::Stored,
        &[
            "/api/v1/streams",
            "/api/v1/streams?limit=1",
            "/api/v1/streams?limit=0",
            "/api/v1/streams?limit=1&after={S}",
            "/api/v1/streams?table={T}",
            "/api/v1/streams?search={F}",
            "/api/v1/streams?search={V}&limit=1",
            "/api/v1/streams?search={K} {F}",
            "/api/v1/streams?stream={S}",
            "/api/v1/streams?table={T}&snapshot=kept",
        ],
    ),
    row(
        "GET",
        "/tiles/{channel}/{tile}",
        Reveals::Stored,
        &[
            "/tiles/{S}.{F}/0.3320312.json",
            "/tiles/{S}.{F}/0.0.json",
            "/tiles/{S}.{F}/10.3242.json",
        ],
    ),
    row(
        "GET",
        "/api/v1/tiles",
        Reveals::Stored,
        &[
            "/api/v1/tiles?channel={S}.{F}&level=0&offset=3320312",
            "/api/v1/tiles?channel=cars,id=seen,site=north.v&channel={S}.{F}&level=0&offset=3320312",
            "/api/v1/tiles?channel={S}.{F}&level=0&offset=3320312&format=binary",
            "/api/v1/tiles?channel={S}.{F}&level=0&offset=0",
        ],
    ),
    row(
        "GET",
        "/api/v1/last",
        Reveals::Stored,
        &[
            "/api/v1/last?stream={S}",
            "/api/v1/last?table={T}",
            "/api/v1/last?search={F}",
            "/api/v1/last?search={V}",
            "/api/v1/last?table={T}&snapshot=kept",
        ],
    ),
    row(
        "GET",
        "/api/v1/scan",
        Reveals::Stored,
        &[
            "/api/v1/scan?stream={S}",
            "/api/v1/scan?stream={S}&format=csv",
            "/api/v1/scan?stream={S}&fields={F}",
            "/api/v1/scan?stream={S}&fields=v,{F}&format=csv",
            "/api/v1/scan?stream={S}&limit=1",
            "/api/v1/scan?stream={S}&limit=100000000",
        ],
    ),
    row(
        "GET",
        "/api/v1/aggregate",
        Reveals::Stored,
        &[
            "/api/v1/aggregate?channel={S}.{F}&functions=count,mean",
            "/api/v1/aggregate?channel={S}.{F}&every=1h&functions=last&format=csv",
            "/api/v1/aggregate?channel=cars,id=seen,site=north.v&channel={S}.{F}&bins=2",
        ],
    ),
    row(
        "GET",
        "/api/v1/export",
        Reveals::Stored,
        &[
            "/api/v1/export?table={T}",
            "/api/v1/export?table={T}&format=lp",
            "/api/v1/export?table={T}&fields={F}",
            "/api/v1/export?table={T}&fields=v&time=rfc3339",
            "/api/v1/export?table={T}&from=0&to=1",
            "/api/v1/export?stream={S}",
            "/api/v1/export?stream={S}&fields={F}&format=lp",
            "/api/v1/export?stream=cars,id=seen,site=north&stream={S}",
        ],
    ),
    row(
        "GET",
        "/api/v1/coverage",
        Reveals::Stored,
        &[
            "/api/v1/coverage?stream={S}",
            "/api/v1/coverage?stream={S}&level=0&fetch=true",
        ],
    ),
    row(
        "GET",
        "/api/v1/presence",
        Reveals::Stored,
        &[
            "/api/v1/presence?stream={S}",
            "/api/v1/presence?stream={S}&from=0&to=1800000000000000000&bins=3&level=rows&level=4",
        ],
    ),
    row(
        "GET",
        "/api/v1/held",
        Reveals::Stored,
        &["/api/v1/held", "/api/v1/held?since=1&epoch=1"],
    ),
    row(
        "GET",
        "/api/v1/rights",
        Reveals::Nothing,
        &["/api/v1/rights", "/api/v1/rights?known=00&wait=0"],
    ),
    row(
        "GET",
        "/api/v1/replay",
        Reveals::Stored,
        &[
            "/api/v1/replay?table={T}",
            "/api/v1/replay?table={T}&fields={F}",
            "/api/v1/replay?table={T}&format=sse&limit=3",
            "/api/v1/replay?table={T}&after=0/1/{S}",
            "/api/v1/replay?table={T}&snapshot=kept",
        ],
    ),
    row(
        "GET",
        "/api/v1/diff",
        Reveals::Stored,
        &[
            "/api/v1/diff?before=kept&after=now",
            "/api/v1/diff?before=now&after=kept&table={T}",
            "/api/v1/diff?before=kept&after=now&tag={K}={V}",
            "/api/v1/diff?before=kept&after={T}",
        ],
    ),
    row("GET", "/api/v1/sync", Reveals::Nothing, &["/api/v1/sync"]),
    row(
        "POST",
        "/api/v1/sync",
        Reveals::Nothing,
        &[
            "/api/v1/sync\n{\"op\":\"verify\"}",
            "/api/v1/sync\n{\"op\":\"pins\",\"edge\":\"{T}\"}",
            "/api/v1/sync\n{\"op\":\"tag\",\"edge\":\"{T}\",\"tags\":{\"site\":\"a\"}}",
            "/api/v1/sync\n{\"op\":\"move\",\"pattern\":\"{T}\",\"from\":\"a\",\"to\":\"b\"}",
        ],
    ),
    row(
        "GET",
        "/api/v1/sync/connect",
        Reveals::Nothing,
        &["/api/v1/sync/connect"],
    ),
    row(
        "GET",
        "/api/v1/live",
        Reveals::Stored,
        &[
            "/api/v1/live?channel={S}.{F}",
            "/api/v1/live?channel=cars,id=seen,site=north.v&channel={S}.{F}",
        ],
    ),
    row(
        "GET",
        "/api/v1/notices/values",
        Reveals::Nothing,
        &[
            "/api/v1/notices/values",
            "/api/v1/notices/values?stream={S}",
        ],
    ),
    row(
        "GET",
        "/api/v1/watches",
        Reveals::Nothing,
        &["/api/v1/watches"],
    ),
    row(
        "GET",
        "/api/v1/watches/{name}/events",
        Reveals::Nothing,
        &["/api/v1/watches/{T}/events"],
    ),
    row(
        "GET",
        "/api/v1/watches/{name}/dead",
        Reveals::Nothing,
        &["/api/v1/watches/{T}/dead"],
    ),
    row(
        "POST",
        "/api/v1/watches/{name}/retry",
        Reveals::Nothing,
        &["/api/v1/watches/{T}/retry\n"],
    ),
    row(
        "GET",
        "/iceberg/v1/config",
        Reveals::Nothing,
        &["/iceberg/v1/config"],
    ),
    row(
        "GET",
        "/iceberg/v1/namespaces",
        Reveals::Nothing,
        &["/iceberg/v1/namespaces"],
    ),
    row(
        "GET",
        "/iceberg/v1/namespaces/{namespace}",
        Reveals::Nothing,
        &["/iceberg/v1/namespaces/headwater"],
    ),
    row(
        "GET",
        "/iceberg/v1/namespaces/{namespace}/tables",
        Reveals::Nothing,
        &["/iceberg/v1/namespaces/headwater/tables"],
    ),
    row(
        "GET",
        "/iceberg/v1/namespaces/{namespace}/tables/{table}",
        Reveals::Nothing,
        &["/iceberg/v1/namespaces/headwater/tables/{T}"],
    ),
    row(
        "POST",
        "/iceberg/v1/namespaces/{namespace}/tables/{table}/metrics",
        Reveals::Nothing,
        &["/iceberg/v1/namespaces/headwater/tables/{T}/metrics\n"],
    ),
    row(
        "GET",
        "/iceberg/v1/namespaces/{namespace}/views",
        Reveals::Nothing,
        &["/iceberg/v1/namespaces/headwater/views"],
    ),
    row(
        "GET",
        "/iceberg/v1/namespaces/{namespace}/views/{view}",
        Reveals::Nothing,
        &["/iceberg/v1/namespaces/headwater/views/{T}"],
    ),
    row(
        "GET",
        "/api/v1/storage",
        Reveals::Stored,
        &["/api/v1/storage", "/api/v1/storage?late=false"],
    ),
    row(
        "POST",
        "/api/v1/manage",
        Reveals::Stored,
        &[
            "/api/v1/manage\n{\"op\":\"show_tables\"}",
            "/api/v1/manage\n{\"op\":\"show_tables\",\"table\":\"{T}\"}",
        ],
    ),
    row(
        "GET",
        "/api/v1/count",
        Reveals::Stored,
        &[
            "/api/v1/count",
            "/api/v1/count?table={T}",
            "/api/v1/count?table={T}&fields={F}",
            "/api/v1/count?search={F}",
            "/api/v1/count?search={V}&from=0",
            "/api/v1/count?table={T}&fields={F}&snapshot=kept",
        ],
    ),
    row("GET", "/query", Reveals::Stored, INFLUXQL),
    row(
        "POST",
        "/query",
        Reveals::Stored,
        &[
            "/query?q=SELECT * FROM \"{T}\"\n",
            "/query?q=SHOW FIELD KEYS\n",
            "/query?q=CREATE DATABASE {T}\n",
            "/query?q=DROP DATABASE {T}\n",
            "/query?q=DROP MEASUREMENT \"{T}\"\n",
        ],
    ),
    #[cfg(feature = "sql")]
    row(
        "POST",
        "/api/v1/sql",
        Reveals::Stored,
        super::statements::HTTP,
    ),
    #[cfg(not(feature = "sql"))]
    row(
        "POST",
        "/api/v1/sql",
        Reveals::Nothing,
        &["/api/v1/sql\nSELECT 1"],
    ),
    row("GET", "/metrics", Reveals::Totals, &["/metrics"]),
    row(
        "GET",
        "/api/aggregators",
        Reveals::Nothing,
        &["/api/aggregators"],
    ),
    row(
        "GET",
        "/api/config/filters",
        Reveals::Nothing,
        &["/api/config/filters"],
    ),
    row("GET", "/api/version", Reveals::Nothing, &["/api/version"]),
    row("GET", "/ping", Reveals::Nothing, &["/ping"]),
    row("GET", "/health", Reveals::Nothing, &["/health"]),
    row("GET", "/ready", Reveals::Nothing, &["/ready"]),
    row("GET", "/-/healthy", Reveals::Nothing, &["/-/healthy"]),
    row("GET", "/-/ready", Reveals::Nothing, &["/-/ready"]),
    row("GET", "/", Reveals::Nothing, &["/", "/{T}", "/view/{T}"]),
    row(
        "GET",
        "/assets/{*name}",
        Reveals::Nothing,
        &["/assets/{T}", "/assets/index.js"],
    ),
    row(
        "GET",
        "/api/openapi.json",
        Reveals::Nothing,
        &["/api/openapi.json"],
    ),
    row("POST", "/write", Reveals::Fits, LINES),
    row(
        "POST",
        "/api/v2/write",
        Reveals::Fits,
        &[
            "/api/v2/write?bucket={T}&precision=ns\n{S} v=1 1700000000000000000\n",
            "/api/v2/write?bucket=b&precision=ns\n{S} {F}=\"t\" 1700000000000000000\n",
        ],
    ),
    row(
        "POST",
        "/api/v3/write_lp",
        Reveals::Fits,
        &[
            "/api/v3/write_lp?db={T}\n{S} v=1 1700000000000000000\n",
            "/api/v3/write_lp?db=b\n{S} {F}=\"t\" 1700000000000000000\n",
        ],
    ),
    row(
        "POST",
        "/api/put",
        Reveals::Fits,
        &[
            "/api/put\n{\"metric\":\"vans\",\"timestamp\":1700000000,\"value\":1,\"tags\":{\"site\":\"north\"}}",
            "/api/put?details\n{\"metric\":\"{T}\",\"timestamp\":1700000000,\"value\":1,\"tags\":{\"{K}\":\"{V}\"}}",
            "/api/put?details\n{\"metric\":\"{T}\",\"timestamp\":1700000000,\"value\":1,\"tags\":{\"{K}\":\"{V}\",\"site\":\"south\"}}",
        ],
    ),
    row(
        "POST",
        "/api/v1/prom/write",
        Reveals::Fits,
        &["/api/v1/prom/write\n", "/api/v1/prom/write\nnorth"],
    ),
];

/// Lines of streams that a token that writes by the tag `site=north` may write, and of others.
const LINES: &[&str] = &[
    "/write?precision=ns\n{S} v=1 1700000000000000000\n",
    "/write?precision=ns\n{S} {F}=1 1700000000000000000\n",
    "/write?precision=ns\n{S} {F}=\"t\" 1700000000000000000\n",
    "/write?precision=ns\n{T},{K}={V} {F}=t 1700000000000000000\n",
    "/write?precision=ns\n{T},{K}={V},site=south {F}=1i 1700000000000000000\n",
    "/write?precision=ns\n{T},site=south,new=x v=1 1700000000000000000\ncars,id=seen,site=north v=2\n",
    "/write?precision=ns\n{T} {F}=",
];

const INFLUXQL: &[&str] = &[
    "/query?q=SHOW DATABASES",
    "/query?q=SHOW MEASUREMENTS",
    "/query?q=SHOW MEASUREMENTS WITH MEASUREMENT =~ /.*/ LIMIT 2 OFFSET 1",
    "/query?q=SHOW MEASUREMENTS WHERE \"{K}\" = '{V}'",
    "/query?q=SHOW MEASUREMENT CARDINALITY",
    "/query?q=SHOW FIELD KEYS",
    "/query?q=SHOW FIELD KEYS FROM \"{T}\"",
    "/query?q=SHOW FIELD KEYS FROM /.*/ LIMIT 1 OFFSET 1",
    "/query?q=SHOW TAG KEYS",
    "/query?q=SHOW TAG KEYS FROM \"{T}\"",
    "/query?q=SHOW TAG VALUES WITH KEY = \"{K}\"",
    "/query?q=SHOW TAG VALUES FROM \"{T}\" WITH KEY =~ /.*/ WHERE \"{K}\" = '{V}'",
    "/query?q=SHOW SERIES",
    "/query?q=SHOW SERIES FROM \"{T}\" LIMIT 1",
    "/query?q=SHOW SERIES CARDINALITY",
    "/query?q=SHOW RETENTION POLICIES",
    "/query?q=SELECT * FROM \"{T}\"",
    "/query?q=SELECT * FROM /.*/ GROUP BY *",
    "/query?q=SELECT *::field FROM \"{T}\" LIMIT 1",
    "/query?q=SELECT \"{F}\" FROM \"{T}\"",
    "/query?q=SELECT \"{F}\" + 1 FROM \"{T}\"",
    "/query?q=SELECT mean(\"{F}\") FROM \"{T}\" GROUP BY \"{K}\"",
    "/query?q=SELECT count(*) FROM \"{T}\"",
    "/query?q=SELECT count(v) FROM \"{T}\" WHERE \"{K}\" =~ /{V}/",
    "/query?q=SELECT v FROM \"{T}\" WHERE \"{F}\" > 'a'",
    "/query?q=SELECT v FROM \"{T}\" WHERE \"{F}\" > 1",
    "/query?q=SELECT v FROM \"{T}\" WHERE \"{F}\" =~ /x/",
    "/query?q=SELECT v FROM \"{T}\" WHERE \"{F}\" = true",
    "/query?q=SELECT last(\"{F}\"), v FROM \"{T}\"",
    "/query?q=SELECT max(v) FROM /{T}|cars/ SLIMIT 1 SOFFSET 1",
    "/query?q=SELECT nosuch(\"{F}\") FROM \"{T}\"",
];

impl Row {
    /// The requests of this row for some thing.
    pub(super) fn of(&self, thing: &Subject) -> Vec<Request> {
        let ask = |text: &&str| {
            let text = thing.fill(text);
            let (target, body) = text.split_once('\n').unwrap_or((&text, ""));
            let mut ask = Request {
                method: self.method.to_owned(),
                target: target.to_owned(),
                headers: Vec::new(),
                body: body.as_bytes().to_vec(),
            };
            if self.route == "/api/v1/prom/write" {
                let labels = match ask.body.is_empty() {
                    true => [("__name__", thing.table), (thing.key, thing.value)],
                    false => [("__name__", "vans"), ("site", "north")],
                };
                ask.body = packed(&series(&labels, 1.0, 1_000));
                ask.headers = vec![
                    ("content-type", "application/x-protobuf"),
                    ("content-encoding", "snappy"),
                ];
            }
            ask
        };
        let mut asks: Vec<Request> = self.requests.iter().map(ask).collect();
        if self.route.contains("tiles") {
            // Whether the asker has it already.
            for at in 0..asks.len() {
                let mut known = asks[at].clone();
                known.headers.push(("if-none-match", "*"));
                asks.push(known);
            }
        }
        #[cfg(feature = "sql")]
        if self.route == "/api/v1/export" {
            for format in ["arrow", "parquet"] {
                for what in ["table={T}", "stream={S}", "table={T}&fields={F}"] {
                    let mut more = asks[0].clone();
                    more.target = thing.fill(&format!("/api/v1/export?{what}&format={format}"));
                    asks.push(more);
                }
            }
        }
        asks
    }
}

/// Whether a request speaks of a secret itself.
pub(super) fn names_a_secret(ask: &Request) -> bool {
    let body = String::from_utf8_lossy(&ask.body);
    ask.target.contains(SECRET) || body.contains(SECRET)
}
