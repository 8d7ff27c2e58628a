//! Real clients: psql, psycopg with SQLAlchemy, PostgreSQL's JDBC driver, pgx and lib/pq of Go, and
//! node-postgres.

use super::start;
use crate::support::Running;
use headwater::{Batch, Database, StreamName};
use headwater_server::tokens::{NewToken, TokenFile};
use headwater_testing::{node_packages, or_skip, python, run};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const PACKAGES: [&str; 2] = ["psycopg[binary]==3.3.9", "sqlalchemy==2.1.9"];
const DRIVERS: [&str; 3] = [
    "psycopg[binary]==3.3.9",
    "asyncpg==0.32.0",
    "pg8000==1.31.6",
];
/// The driver of Arrow's database connectivity.
const ADBC: [&str; 2] = ["adbc-driver-postgresql==1.13.0", "pyarrow==26.0.1"];
/// DuckDB, with its reader of PostgreSQL.
const DUCKDB: [&str; 3] = [
    "duckdb==1.5.5",
    "duckdb-extensions==1.5.5",
    "duckdb-extension-postgres-scanner==1.5.5",
];
/// The newest whose packages are all on PyPI.
const DBT: [&str; 2] = ["dbt-core==1.10.11", "dbt-postgres==1.9.1"];
const NODE_PACKAGES: [&str; 2] = ["pg@8.23.1", "pg-cursor@2.22.0"];
/// Where Debian's libpostgresql-jdbc-java puts the driver.
const DRIVER: &str = "/usr/share/java/postgresql.jar";

/// A psql that asks nothing and stops at the first mistake.
fn psql(server: &Running, more: &str) -> Command {
    let port = server.postgres.unwrap().port();
    let mut psql = Command::new("psql");
    psql.env("PGCONNECT_TIMEOUT", "20")
        .args([
            "--no-psqlrc",
            "--no-password",
            "--set=ON_ERROR_STOP=1",
            "--quiet",
        ])
        .arg(format!(
            "host=localhost hostaddr=127.0.0.1 port={port} user=ann dbname=plant {more}"
        ));
    psql
}

fn has_psql() -> Result<(), String> {
    run(Command::new("psql").arg("--version")).map(drop)
}

/// A table that only the drivers write to.
fn with_written(server: &mut headwater_server::Settings) {
    let db = Database::open(server.engine.clone()).unwrap();
    let mut batch = Batch::new();
    let stream = StreamName::new("written", [("id", "gone")]);
    batch.stream(&stream).row(0, [("v", 0.0.into())]).unwrap();
    db.commit(batch).unwrap();
    db.drop_streams("written", &[("id".to_owned(), "gone".to_owned())])
        .unwrap();
    db.close().unwrap();
}

#[test]
fn psql_describes_tables_and_runs_statements() {
    if or_skip(has_psql()).is_none() {
        return;
    }
    let server = start(|_| {});
    let ask = |sql: &str| {
        run(psql(&server, "").args(["--tuples-only", "--no-align", "--command", sql])).unwrap()
    };
    assert_eq!(
        ask("\\dt"),
        "public|Odd Name|table|ann\npublic|cars|table|ann\n"
    );
    let described = ask("\\d cars");
    for line in [
        "time|timestamp with time zone||not null|",
        "id|text|||",
        "laps|numeric(20,0)|||",
        "raw|bytea|||",
    ] {
        assert!(described.lines().any(|l| l == line), "{line}: {described}");
    }
    assert!(ask("\\d \"Odd Name\"").contains("v|double precision"));
    assert!(ask("\\l").starts_with("plant|ann|UTF8"));
    assert!(ask("\\dn").starts_with("public|"));
    assert!(ask("\\d+ cars").contains("|tag"));
    assert_eq!(
        ask("SELECT id, speed FROM cars ORDER BY time"),
        "seen|1.5\nother|2.5\n"
    );
    let mut wrong = Vec::new();
    // Every way to list things answers, most of them with nothing.
    for command in [
        "\\d",
        "\\d *",
        "\\da",
        "\\dA",
        "\\db",
        "\\dc",
        "\\dC",
        "\\dd",
        "\\ddp",
        "\\dD",
        "\\des",
        "\\det",
        "\\deu",
        "\\dew",
        "\\df",
        "\\dF",
        "\\di",
        "\\dl",
        "\\dL",
        "\\dm",
        "\\do",
        "\\dO",
        "\\dp",
        "\\drds",
        "\\dRp",
        "\\dRs",
        "\\ds",
        "\\dS",
        "\\dT",
        "\\dt+",
        "\\du",
        "\\dv",
        "\\dx",
        "\\dX",
        "\\dy",
        "\\l+",
        "\\dn+",
        "\\conninfo",
        "\\encoding",
        "\\d pg_catalog.pg_class",
        "\\d information_schema.columns",
    ] {
        let output = psql(&server, "")
            .args(["--command", command])
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        if told.contains("ERROR") {
            wrong.push(format!("{command}: {told}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // What was made is listed.
    ask("CREATE VIEW fast AS SELECT id, max(speed) FROM cars GROUP BY id");
    ask("CREATE INDEX by_name ON cars (name)");
    assert_eq!(ask("\\dv"), "public|fast|view|ann\n");
    assert_eq!(ask("\\di"), "public|by_name|index|ann|cars\n");
    assert_eq!(ask("\\d fast"), "id|text|||\nmax|double precision|||\n");
    let footers =
        |command: &str| run(psql(&server, "").args(["--no-align", "--command", command])).unwrap();
    assert!(footers("\\d+ fast").contains("SELECT id, max(speed) FROM cars GROUP BY id"));
    assert!(footers("\\d cars").contains("\"by_name\" btree (name)"));
    assert!(ask("\\d by_name").contains("name|text|yes|name"));
    assert!(!ask("\\dT").contains("fast"));
    ask("DROP VIEW fast");
    ask("DROP INDEX by_name");
    // Files of the client, out and in.
    let csv = tempfile::NamedTempFile::new().unwrap();
    let copy = |what: &str, way: &str| {
        let path = csv.path().display();
        let command = format!("\\copy {what} {way} '{path}' WITH (FORMAT csv, HEADER)");
        run(psql(&server, "").args(["--command", &command])).unwrap()
    };
    copy("(SELECT time, id, speed FROM cars ORDER BY time)", "TO");
    assert_eq!(
        std::fs::read_to_string(csv.path()).unwrap(),
        "time,id,speed\n2023-11-14 22:13:20+00,seen,1.5\n2023-11-14 22:13:21.123456789+00,other,2.5\n"
    );
    std::fs::write(csv.path(), "time,id,speed\n2024-01-01,\"a, b\",3.5\n").unwrap();
    copy("cars (time, id, speed)", "FROM");
    assert_eq!(
        ask("SELECT time, id, speed FROM cars WHERE time > '2023-12-01'"),
        "2024-01-01 00:00:00+00|a, b|3.5\n"
    );
    ask("DELETE FROM cars WHERE id = 'a, b'");
    // By the clocks of the client's zone.
    let in_berlin = |sql: &str| {
        let mut psql = psql(&server, "");
        run(psql
            .env("PGTZ", "Europe/Berlin")
            .args(["-A", "-t", "-c", sql]))
        .unwrap()
    };
    assert_eq!(in_berlin("SHOW timezone"), "Europe/Berlin\n");
    assert_eq!(
        in_berlin("SELECT time FROM cars WHERE time = '2023-11-14 23:13:20'"),
        "2023-11-14 23:13:20+01\n"
    );
    // Several rows at a time, and a mistake with its place.
    let parts = run(psql(&server, "").args([
        "-A",
        "-t",
        "-v",
        "FETCH_COUNT=2",
        "-c",
        "SELECT id FROM cars ORDER BY time",
    ]))
    .unwrap();
    assert_eq!(parts, "seen\nother\n");
    let wrong = psql(&server, "")
        .args(["-c", "SELECT spede FROM cars"])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(
        told.contains("LINE 1: SELECT spede FROM cars") && told.contains("HINT"),
        "{told}"
    );
}

#[test]
fn psql_comes_in_with_a_token_under_tls_and_sees_what_it_may() {
    if or_skip(has_psql()).is_none() {
        return;
    }
    let files = tempfile::tempdir().unwrap();
    let (cert, key): (PathBuf, PathBuf) =
        (files.path().join("cert.pem"), files.path().join("key.pem"));
    certify(&cert, &key);
    let mut token = String::new();
    let server = start(|settings| {
        settings.tls_cert = Some(cert.clone());
        settings.tls_key = Some(key.clone());
        let new = NewToken {
            name: "a".to_owned(),
            rules: vec!["read cars,id=seen".parse().unwrap()],
            expires: None,
        };
        token = TokenFile::of_database(settings.db()).create(new).unwrap();
    });
    let verified = format!("sslmode=verify-full sslrootcert={}", cert.display());
    let ask = |token: &str, sql: &str| {
        run(psql(&server, &verified)
            .env("PGPASSWORD", token)
            .args(["-A", "-t", "-c", sql]))
    };
    assert_eq!(ask(&token, "SELECT id FROM cars").unwrap(), "seen\n");
    assert_eq!(ask(&token, "\\dt").unwrap(), "public|cars|table|ann\n");
    assert_eq!(ask(&token, "SHOW ssl").unwrap(), "on\n");
    assert!(
        ask("hw_wrong", "SELECT 1")
            .unwrap_err()
            .contains("password authentication failed")
    );
    // Another certificate is taken while the server runs.
    certify(&cert, &key);
    let begun = Instant::now();
    while ask(&token, "SELECT 1").is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never came");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn certify(cert: &Path, key: &Path) {
    let CertifiedKey {
        cert: made,
        signing_key,
    } = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(cert, made.pem()).unwrap();
    std::fs::write(key, signing_key.serialize_pem()).unwrap();
}

#[test]
fn programs_in_python_read_write_and_look_at_tables() {
    let Some(python) = or_skip(python(&PACKAGES)) else {
        return;
    };
    let server = start(with_written);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/postgres/drivers.py");
    let port = server.postgres.unwrap().port().to_string();
    let printed = run(Command::new(python).arg(script).arg(port)).unwrap();
    assert_eq!(printed.lines().last(), Some("done"), "{printed}");
}

#[test]
fn parameters_of_every_type_come_from_every_driver_of_python() {
    let Some(python) = or_skip(python(&DRIVERS)) else {
        return;
    };
    let server = start(|_| {});
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/postgres/driver_types.py");
    let port = server.postgres.unwrap().port().to_string();
    let printed = run(Command::new(python).arg(script).arg(port)).unwrap();
    assert_eq!(printed.lines().last(), Some("done"), "{printed}");
}

/// Runs a script of these packages against a server.
fn script(packages: &[&str], name: &str, server: &Running) {
    let Some(python) = or_skip(python(packages)) else {
        return;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/postgres");
    let port = server.postgres.unwrap().port().to_string();
    let printed = run(Command::new(python)
        .arg("-B")
        .arg(script.join(name))
        .arg(port))
    .unwrap();
    assert_eq!(printed.lines().last(), Some("done"), "{printed}");
}

#[test]
fn adbc_reads_writes_and_looks_at_tables() {
    script(&ADBC, "adbc.py", &start(|_| {}));
}

#[test]
fn duckdb_attaches_the_database() {
    script(&DUCKDB, "attach.py", &start(|_| {}));
}

#[test]
fn dbt_makes_views() {
    script(&DBT, "models.py", &start(|_| {}));
}

#[test]
fn programs_in_java_read_write_and_look_at_tables() {
    let java = run(Command::new("java").arg("--version")).and_then(|_| {
        Path::new(DRIVER)
            .exists()
            .then_some(())
            .ok_or_else(|| format!("{DRIVER} is not there"))
    });
    if or_skip(java).is_none() {
        return;
    }
    let server = start(with_written);
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/postgres/Jdbc.java");
    let port = server.postgres.unwrap().port().to_string();
    // The driver tells the zone of its machine; instants must be the same in any.
    let mut java = Command::new("java");
    java.args(["-Duser.timezone=Europe/Berlin", "-cp", DRIVER])
        .arg(program)
        .arg(port);
    let printed = run(&mut java).unwrap();
    assert_eq!(printed.lines().last(), Some("done"), "{printed}");
}

#[test]
fn programs_in_javascript_read_write_and_look_at_tables() {
    let Some(folder) = or_skip(node_packages(&NODE_PACKAGES)) else {
        return;
    };
    let server = start(with_written);
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/postgres/drivers.js");
    let port = server.postgres.unwrap().port().to_string();
    // Instants must be the same by the clocks of any machine.
    let mut node = Command::new("node");
    node.env("TZ", "America/New_York").arg(program).arg(port);
    let printed = run(node.arg(folder)).unwrap();
    assert_eq!(printed, "done\n");
}

#[test]
fn programs_in_go_read_write_and_look_at_tables() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/postgres/go");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("postgres-client-in-go");
    let built = run(Command::new("go")
        .current_dir(folder)
        .env("CGO_ENABLED", "0")
        .args(["build", "-o"])
        .arg(&program)
        .arg("."));
    if or_skip(built).is_none() {
        return;
    }
    let server = start(with_written);
    let port = server.postgres.unwrap().port().to_string();
    let printed = run(Command::new(program).arg(port)).unwrap();
    assert_eq!(printed, "done\n");
}
