//! Several databases: measurements of the same name in each.

use super::{error, series};
use crate::read_routes::{cars, encoded, get, serve};
use crate::support::{Running, client};
use headwater_server::settings::Apart;
use headwater_server::tokens::{NewToken, TokenFile};
use serde_json::{Value, json};

/// Writes a line; gives the status.
fn write(server: &Running, path: &str, line: &str) -> u16 {
    let sent = client().post(server.url(path)).send(line);
    sent.unwrap().status().as_u16()
}

/// The result of a statement in a database, by POST.
fn query_database(server: &Running, database: &str, statement: &str) -> Value {
    let path = format!("/query?db={database}&epoch=s&q={}", encoded(statement));
    let mut answer = client().post(server.url(&path)).send_empty().unwrap();
    let body: Value = answer.body_mut().read_json().unwrap();
    body["results"][0].clone()
}

fn values(server: &Running, database: &str, statement: &str) -> Value {
    let result = query_database(server, database, statement);
    assert!(
        result["error"].is_null(),
        "{database}: {statement}: {result}"
    );
    result["series"][0]["values"].clone()
}

/// A server into whose databases `plant` (the first), `yard` and `depot` something was written.
fn three() -> Running {
    let server = Running::start();
    assert_eq!(
        write(&server, "/write?db=plant", "cpu,host=a load=1 1700000000"),
        204
    );
    assert_eq!(
        write(
            &server,
            "/api/v2/write?bucket=yard/autogen",
            "cpu,host=b load=2 1700000000"
        ),
        204
    );
    assert!(query_database(&server, "", "CREATE DATABASE depot")["error"].is_null());
    assert_eq!(
        write(
            &server,
            "/api/v3/write_lp?db=depot",
            "cpu,host=c load=3 1700000000\nmem,host=c,k=x free=1 1700000000"
        ),
        204
    );
    server
}

#[test]
fn databases_do_not_see_or_overwrite_one_anothers_measurements() {
    let server = three();
    for (database, host, load) in [("plant", "a", 1), ("yard", "b", 2), ("depot", "c", 3)] {
        let rows = values(&server, database, "SELECT load, host FROM cpu");
        assert_eq!(rows, json!([[1_700_000_000, load, host]]), "{database}");
        let keys = values(&server, database, "SHOW SERIES FROM cpu");
        assert_eq!(keys, json!([[format!("cpu,host={host}")]]), "{database}");
        let regex = values(&server, database, "SELECT load FROM /^c/");
        assert_eq!(regex, json!([[1_700_000_000, load]]), "{database}");
        let within = values(
            &server,
            database,
            "SELECT max(x) FROM (SELECT load AS x FROM cpu GROUP BY host)",
        );
        assert_eq!(within[0][1], json!(load), "{database}");
    }
    assert_eq!(
        values(&server, "plant", "SHOW DATABASES"),
        json!([["plant"], ["depot"], ["yard"]])
    );
    assert_eq!(
        values(&server, "depot", "SHOW MEASUREMENTS"),
        json!([["cpu"], ["mem"]])
    );
    assert_eq!(
        values(&server, "plant", "SHOW MEASUREMENTS"),
        json!([["cpu"]])
    );
    assert_eq!(
        values(&server, "plant", "SHOW MEASUREMENTS ON depot"),
        json!([["cpu"], ["mem"]])
    );
    assert_eq!(
        values(&server, "plant", "SELECT load FROM yard..cpu")[0][1],
        json!(2)
    );
    // What comes without a name, or by other doors, is in the main one.
    assert_eq!(values(&server, "", "SELECT load FROM cpu")[0][1], json!(1));
    assert_eq!(
        write(&server, "/write", "cpu,host=d load=4 1700000000"),
        204
    );
    assert_eq!(
        values(&server, "plant", "SELECT count(load) FROM cpu")[0][1],
        json!(2)
    );
    let error = &query_database(&server, "garden", "SELECT load FROM cpu")["error"];
    assert!(
        error
            .as_str()
            .unwrap()
            .contains("database not found: garden"),
        "{error}"
    );
    // Other routes know them as tables.
    let (status, body) = get(&server, "/api/v1/last?stream=yard.cpu,host=b");
    assert!(status == 200 && body.contains("2.0"), "{body}");
}

#[test]
fn one_statement_may_name_several_databases() {
    let server = three();
    let result = query_database(
        &server,
        "plant",
        "SELECT load FROM cpu, yard..cpu, depot.autogen.cpu",
    );
    let found = result["series"].as_array().unwrap();
    let loads: Vec<&Value> = found.iter().map(|s| &s["values"][0][1]).collect();
    assert_eq!(loads, [&json!(1), &json!(3), &json!(2)]);
    assert!(found.iter().all(|s| s["name"] == "cpu"), "{result}");
}

#[test]
fn a_database_is_dropped_with_its_tables_and_no_others() {
    let server = three();
    assert!(query_database(&server, "plant", "DELETE FROM mem")["error"].is_null());
    assert_eq!(
        values(&server, "depot", "SELECT free FROM mem")[0][1],
        json!(1),
        "another database's"
    );
    assert!(query_database(&server, "depot", "DROP MEASUREMENT mem")["error"].is_null());
    assert_eq!(
        values(&server, "depot", "SHOW MEASUREMENTS"),
        json!([["cpu"]])
    );
    assert!(query_database(&server, "plant", "DROP DATABASE depot")["error"].is_null());
    assert!(
        query_database(&server, "plant", "DROP DATABASE depot")["error"].is_null(),
        "gone is gone"
    );
    assert_eq!(
        values(&server, "plant", "SHOW DATABASES"),
        json!([["plant"], ["yard"]])
    );
    assert!(!query_database(&server, "depot", "SELECT load FROM cpu")["error"].is_null());
    assert!(query_database(&server, "plant", "DROP DATABASE plant")["error"].is_null());
    assert_eq!(
        values(&server, "yard", "SELECT load FROM cpu")[0][1],
        json!(2)
    );
    // Its place is taken by the next.
    assert!(query_database(&server, "yard", "CREATE DATABASE works")["error"].is_null());
    assert_eq!(
        values(&server, "works", "SHOW DATABASES"),
        json!([["works"], ["yard"]])
    );
    assert_eq!(
        query_database(&server, "works", "SHOW MEASUREMENTS")["series"],
        json!([])
    );
}

#[test]
fn names_are_kept_over_a_restart_and_in_a_backup() {
    let server = three();
    let server = server.restarted(|_| {});
    assert_eq!(
        values(&server, "yard", "SHOW DATABASES"),
        json!([["plant"], ["depot"], ["yard"]])
    );
    assert_eq!(
        values(&server, "yard", "SELECT load FROM cpu")[0][1],
        json!(2)
    );
}

#[test]
fn a_database_from_before_keeps_all_names_together_unless_told_otherwise() {
    let server = serve(cars);
    assert_eq!(
        write(&server, "/write?db=a", "obd,car=c speed=1 1700000000"),
        204
    );
    assert_eq!(
        write(&server, "/write?db=b", "obd,car=d speed=1 1700000000"),
        204
    );
    assert_eq!(
        series(&server, "SHOW SERIES FROM obd")[0]["values"]
            .as_array()
            .unwrap()
            .len(),
        4
    );
    assert!(error(&server, "DROP DATABASE a").contains("cannot be dropped"));
    let server = server.restarted(|settings| settings.write_databases = Apart::Apart);
    assert_eq!(
        write(&server, "/write?db=a", "obd,car=e speed=1 1700000000"),
        204
    );
    assert_eq!(
        write(&server, "/write?db=b", "obd,car=f speed=1 1700000000"),
        204
    );
    assert_eq!(
        values(&server, "b", "SHOW SERIES FROM obd"),
        json!([["obd,car=f"]])
    );
    // What was said holds from then on.
    let server = server.restarted(|settings| settings.write_databases = Apart::Auto);
    assert_eq!(
        values(&server, "b", "SHOW SERIES FROM obd"),
        json!([["obd,car=f"]])
    );
    let server = server.restarted(|settings| settings.write_databases = Apart::Together);
    assert_eq!(
        values(&server, "c", "SHOW SERIES FROM \"b.obd\""),
        json!([["b.obd,car=f"]])
    );
}

#[test]
fn names_that_cannot_be_are_refused_and_nothing_is_stored() {
    let server = three();
    assert_eq!(write(&server, "/write?db=a.b", "cpu load=1"), 400);
    let long = "x".repeat(129);
    assert_eq!(
        write(&server, &format!("/write?db={long}"), "cpu load=1"),
        400
    );
    let error = &query_database(&server, "plant", "CREATE DATABASE \"a.b\"")["error"];
    assert!(error.as_str().unwrap().contains("dot"), "{error}");
    assert_eq!(
        values(&server, "plant", "SELECT count(load) FROM cpu")[0][1],
        json!(1)
    );
}

#[test]
fn a_refused_write_makes_no_database() {
    let server = Running::start();
    let databases = |server: &Running| values(server, "", "SHOW DATABASES");
    let none = databases(&server);
    // Neither the main one nor one beside it, whatever refuses the write.
    for main in [true, false] {
        let path = |more: &str| format!("/write?db=yard{more}");
        assert_eq!(write(&server, &path(""), "cpu load="), 400);
        assert_eq!(write(&server, &path(""), "cpu load=1 1 1"), 400);
        assert_eq!(write(&server, &path("&precision=x"), "cpu load=1"), 400);
        let partly = "cpu load=1 1700000000\ncpu load=";
        assert_eq!(write(&server, &path("&accept_partial=false"), partly), 400);
        assert_eq!(write(&server, &path(""), "cpu load=1x"), 400);
        match main {
            true => {
                assert_eq!(databases(&server), none);
                assert_eq!(write(&server, "/write?db=plant", "cpu load=1 1"), 204);
            }
            false => assert_eq!(databases(&server), json!([["plant"]])),
        }
    }
    let missing = &query_database(&server, "yard", "SHOW MEASUREMENTS")["error"];
    assert_eq!(missing, "database not found: yard");
    // Nor after a restart; and what a statement makes stays.
    let server = server.restarted(|_| {});
    assert_eq!(databases(&server), json!([["plant"]]));
    assert!(query_database(&server, "", "CREATE DATABASE yard")["error"].is_null());
    assert_eq!(write(&server, "/write?db=yard", "cpu load="), 400);
    assert_eq!(databases(&server), json!([["plant"], ["yard"]]));
}

#[test]
fn a_database_stays_when_one_of_its_first_writes_is_stored() {
    let server = Running::start();
    assert_eq!(write(&server, "/write?db=plant", "cpu load=1 1"), 204);
    let rounds: Vec<String> = (0..20).map(|round| format!("d{round}")).collect();
    for name in &rounds {
        let path = format!("/write?db={name}");
        std::thread::scope(|scope| {
            for sender in 0..6 {
                let (server, path) = (&server, &path);
                scope.spawn(move || match sender {
                    3 => assert_eq!(write(server, path, "cpu load=3 1700000000"), 204),
                    _ => assert_eq!(write(server, path, "cpu load="), 400),
                });
            }
        });
    }
    let server = server.restarted(|_| {});
    for name in &rounds {
        let rows = values(&server, name, "SELECT load FROM cpu");
        assert_eq!(rows, json!([[1_700_000_000, 3]]), "{name}");
    }
}

#[test]
fn tokens_make_and_see_databases_as_far_as_they_may_write_and_read() {
    let mut tokens = Vec::new();
    let server = Running::start_with(|settings| {
        let file = TokenFile::of_database(settings.db());
        for (name, rules) in [
            ("all", vec!["read *", "write *", "manage *"]),
            ("yard", vec!["read yard.*", "write yard.*"]),
            ("reader", vec!["read cpu"]),
        ] {
            let new = NewToken {
                name: name.to_owned(),
                rules: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
                expires: None,
            };
            tokens.push(file.create(new).unwrap());
        }
    });
    let [all, yard, reader] = tokens.as_slice() else {
        panic!("three tokens")
    };
    let post = |token: &str, path: &str, body: &str| {
        let request = client().post(server.url(path));
        let request = request.header("Authorization", format!("Token {token}"));
        let mut answer = request.send(body).unwrap();
        let status = answer.status().as_u16();
        (status, answer.body_mut().read_to_string().unwrap())
    };
    let ask = |token: &str, statement: &str| {
        let path = format!("/query?db=plant&q={}", encoded(statement));
        post(token, &path, "").1
    };
    let line = "cpu,host=a load=1 1700000000";
    assert_eq!(post(all, "/write?db=plant", line).0, 204);
    assert_eq!(post(yard, "/write?db=yard", line).0, 204);
    assert_eq!(post(yard, "/write?db=plant", line).0, 403, "another's");
    assert_eq!(post(all, "/write?db=secret", line).0, 204);
    // Who may write nothing under a name makes none, and cannot tell which there are.
    for name in ["secret", "nowhere"] {
        assert_eq!(
            post(yard, &format!("/write?db={name}"), line).0,
            403,
            "{name}"
        );
        let made = ask(yard, &format!("CREATE DATABASE {name}"));
        assert_eq!(
            made.contains("this token may not"),
            name == "nowhere",
            "{made}"
        );
    }
    assert!(ask(all, "SHOW DATABASES").contains("[[\"plant\"],[\"secret\"],[\"yard\"]]"));
    assert!(ask(yard, "SHOW DATABASES").contains("[[\"plant\"],[\"yard\"]]"));
    assert!(ask(reader, "SHOW DATABASES").contains("[[\"plant\"]]"));
    assert!(ask(reader, "CREATE DATABASE more").contains("this token may not"));
    assert!(ask(reader, "CREATE DATABASE plant").contains("{\"statement_id\":0}"));
    // Neither is taken away by who may not manage all of it.
    for name in ["plant", "yard", "secret"] {
        let (of_yard, of_reader) = (
            ask(yard, &format!("DROP DATABASE {name}")),
            ask(reader, &format!("DROP DATABASE {name}")),
        );
        assert!(
            ask(all, "SHOW DATABASES").contains(name),
            "{of_yard} {of_reader}"
        );
        let counted = ask(all, &format!("SELECT count(load) FROM {name}..cpu"));
        assert!(counted.contains(",1]]"), "{name}: {counted}");
    }
    // A database that may not be seen is answered as one that is not there.
    for name in ["secret", "nowhere"] {
        let unseen = ask(reader, &format!("SELECT load FROM {name}..cpu"));
        assert!(
            unseen.contains(&format!("database not found: {name}\"")),
            "{unseen}"
        );
    }
}
