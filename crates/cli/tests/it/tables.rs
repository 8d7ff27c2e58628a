//! `headwater table`.

use crate::support::Bench;

#[test]
fn tables_are_declared_changed_and_shown() {
    let bench = Bench::new();
    bench
        .run(
            "table create",
            &[
                "plant",
                "--field",
                "temp:f64",
                "--field",
                "a:b:i64",
                "--duplicates",
                "keep",
                "--leaf-events",
                "512",
            ],
        )
        .ok();
    bench
        .run(
            "table alter",
            &[
                "plant",
                "--field",
                "name:string",
                "--field",
                "a:b:f64",
                "--leaf-events",
                "1024",
            ],
        )
        .ok();
    let json = bench.run("table show", &["--format", "json"]).ok().json();
    assert_eq!(
        json,
        serde_json::json!([{
            "name": "plant", "duplicates": "keep", "leaf_events": 1024, "streams": 0, "tags": [],
            "fields": [{"name": "temp", "type": "f64"}, {"name": "a:b", "type": "f64"}, {"name": "name", "type": "string"}],
        }])
    );
    let ran = bench.run("table show", &["plant"]).ok();
    assert!(ran.stdout.contains("name   string"), "{}", ran.stdout);
}

#[test]
fn impossible_changes_are_refused() {
    let bench = Bench::new();
    assert_eq!(bench.run("table show", &[]).code, 1, "there is no database");
    bench
        .run("table create", &["plant", "--field", "temp:f64"])
        .ok();
    let code = |command: &str, arguments: &[&str]| bench.run(command, arguments).code;
    assert_eq!(code("table create", &["plant"]), 1);
    assert_eq!(code("table alter", &["plant", "--field", "temp:string"]), 1);
    assert_eq!(code("table alter", &["other", "--field", "temp:f64"]), 1);
    assert_eq!(code("table alter", &["plant"]), 2);
    assert_eq!(code("table create", &["x", "--field", "temp"]), 2);
    assert_eq!(code("table create", &["x", "--field", "temp:float"]), 2);
    assert_eq!(code("table show", &["other"]), 1);
}
