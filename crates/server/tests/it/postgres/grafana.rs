//! What Grafana's data source for PostgreSQL sends: its questions about the server and its tables,
//! and what its macros become. The statements are written down after its documentation and what it
//! asks a server.

use super::{session, start};

/// Whether a table is in a schema of the search path, as the editor asks.
const IN_PATH: &str = r#"quote_ident(table_schema) IN (
          SELECT
            CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END
          FROM
            generate_series(
              array_lower(string_to_array(current_setting('search_path'),','),1),
              array_upper(string_to_array(current_setting('search_path'),','),1)
            ) as i,
            string_to_array(current_setting('search_path'),',') s
          )"#;

#[test]
fn grafana_finds_tables_and_columns() {
    let server = start(|_| {});
    let mut client = session(&server);
    assert_eq!(
        client.rows("SELECT current_setting('server_version_num')::int/100"),
        ["1600"]
    );
    assert!(
        client
            .rows("SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'")
            .is_empty()
    );
    let tables = format!(
        "select quote_ident(table_name) as \"table\" from information_schema.tables
    where quote_ident(table_schema) not in ('information_schema', 'pg_catalog', '_timescaledb_cache', '_timescaledb_catalog', '_timescaledb_internal', '_timescaledb_config', 'timescaledb_information', 'timescaledb_experimental')
      and table_type in ('BASE TABLE', 'VIEW') and {IN_PATH}"
    );
    let mut found = client.rows(&tables);
    found.sort();
    assert_eq!(found, ["\\\"Odd Name\\\"", "cars"]);
    let columns = format!(
        "select quote_ident(column_name) as \"column\", data_type as \"type\" from information_schema.columns
    where quote_ident(table_name) = 'cars' and {IN_PATH}"
    );
    let found = client.rows(&columns);
    assert!(
        found.contains(&"\\\"time\\\"|timestamp with time zone".to_owned())
            || found.contains(&"time|timestamp with time zone".to_owned()),
        "{found:?}"
    );
    assert!(
        found.contains(&"speed|double precision".to_owned()),
        "{found:?}"
    );
    assert_eq!(client.rows("SELECT 1"), ["1"]);
}

/// The questions of its query editor since version 10: tables of other schemas come with their
/// schema, and the table whose columns are asked for may be written with one.
#[test]
fn grafanas_editor_finds_tables_and_columns() {
    let server = start(|_| {});
    let mut client = session(&server);
    let tables = format!(
        "SELECT CASE WHEN {IN_PATH} THEN quote_ident(table_name)
           ELSE quote_ident(table_schema) || '.' || quote_ident(table_name) END AS \"table\"
         FROM information_schema.tables
         WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog', 'timescaledb_information')
         ORDER BY CASE WHEN {IN_PATH} THEN 0 ELSE 1 END, 1"
    );
    assert_eq!(client.rows(&tables), ["\\\"Odd Name\\\"", "cars"]);
    for (table, wanted) in [
        ("cars", true),
        ("public.cars", true),
        ("other.cars", false),
        ("nothere", false),
    ] {
        let columns = format!(
            "SELECT quote_ident(column_name) AS \"column\", data_type AS \"type\"
             FROM information_schema.columns
             WHERE CASE WHEN array_length(parse_ident('{table}'),1) = 2
               THEN quote_ident(table_schema) = (parse_ident('{table}'))[1]
                 AND quote_ident(table_name) = (parse_ident('{table}'))[2]
               ELSE quote_ident(table_name) = '{table}' AND {IN_PATH}
             END"
        );
        let found = client.rows(&columns);
        let has_speed = found.contains(&"speed|double precision".to_owned());
        assert_eq!(has_speed, wanted, "{table}: {found:?}");
        assert_eq!(found.is_empty(), !wanted, "{table}: {found:?}");
    }
    assert_eq!(
        client.rows("SELECT schema_name AS \"name\" FROM information_schema.schemata WHERE schema_name NOT IN ('information_schema', 'pg_catalog', 'pg_toast') ORDER BY schema_name"),
        ["public"]
    );
}

#[test]
fn what_grafanas_macros_become_gives_series() {
    let server = start(|_| {});
    let mut client = session(&server);
    let within = "time BETWEEN '2023-11-14T22:00:00Z' AND '2023-11-14T23:00:00.123Z'";
    for (sql, wanted) in [
        // $__time, $__timeFilter
        (format!("SELECT time AS \"time\", speed FROM cars WHERE {within} ORDER BY 1"), vec!["2023-11-14 22:13:20+00|1.5", "2023-11-14 22:13:21.123456+00|2.5"]),
        // $__timeGroup, $__timeGroupAlias
        (format!("SELECT floor(extract(epoch from time)/60)*60 AS \"time\", avg(speed) AS speed FROM cars WHERE {within} GROUP BY 1 ORDER BY 1"), vec!["1699999980|2"]),
        // With TimescaleDB switched on.
        (format!("SELECT time_bucket('300.000s',time) AS \"time\", avg(speed) AS speed FROM cars WHERE {within} GROUP BY 1 ORDER BY 1"), vec!["2023-11-14 22:10:00+00|2"]),
        // $__timeEpoch
        ("SELECT extract(epoch from time) as \"time\" FROM cars WHERE id = 'seen'".to_owned(), vec!["1700000000"]),
        // $__unixEpochFilter, $__unixEpochGroup
        ("SELECT count(*) FROM cars WHERE extract(epoch from time) >= 1699999980 AND extract(epoch from time) <= 1700000001".to_owned(), vec!["1"]),
        (format!("SELECT date_bin('1 minute', time, TIMESTAMP '1970-01-01 00:00:00') AS \"time\", id AS metric, min(speed) FROM cars WHERE {within} GROUP BY 1, 2 ORDER BY 1, 2"), vec!["2023-11-14 22:13:00+00|other|2.5", "2023-11-14 22:13:00+00|seen|1.5"]),
        (format!("SELECT $1::text FROM cars WHERE {within}").replace("$1::text", "DISTINCT id") + " ORDER BY id", vec!["other", "seen"]),
    ] {
        assert_eq!(client.rows(&sql), wanted, "{sql}");
    }
}
