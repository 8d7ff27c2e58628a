//! What cannot be tested is told, or fails where it must be there.

use std::process::Command;

const ASKED: &str = "HEADWATER_TESTING_SKIPS_ASKED";
const THIS: &str = "skips::a_missing_program_is_told_or_fails";

#[test]
fn a_missing_program_is_told_or_fails() {
    if std::env::var_os(ASKED).is_some() {
        let found = headwater_testing::installed("a program that there is not");
        assert!(headwater_testing::or_skip(found).is_none());
        headwater_testing::recording_is_missing("gone.csv.gz");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let told = dir.path().join("told");
    let ask = |required: bool| {
        let mut test = Command::new(std::env::current_exe().unwrap());
        test.args(["--exact", THIS])
            .env(ASKED, "yes")
            .env("TEST_SKIPS", &told)
            .env_remove("TEST_CLIENTS");
        if required {
            test.env("TEST_CLIENTS", "required");
        }
        test.output().unwrap().status.success()
    };
    assert!(!ask(true));
    assert!(!told.exists());
    assert!(ask(false));
    let told = std::fs::read_to_string(&told).unwrap();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 2, "{told}");
    assert!(lines.iter().all(|line| line.starts_with(THIS)), "{told}");
    assert!(lines[0].contains("a program that there is not is not installed"));
    assert!(lines[1].contains("gone.csv.gz"), "{told}");
}
