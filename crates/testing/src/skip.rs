//! Tests that cannot be run here.

use std::io::Write;

/// The requirement of a test, or `None` where it is missing, which is reported: the test ends then.
/// Panics where `TEST_CLIENTS=required`.
pub fn or_skip<T>(found: Result<T, String>) -> Option<T> {
    match found {
        Ok(found) => Some(found),
        Err(why) => {
            let is_required = std::env::var("TEST_CLIENTS").as_deref() == Ok("required");
            assert!(
                !is_required,
                "TEST_CLIENTS=required, and this is missing: {why}"
            );
            note(&why);
            None
        }
    }
}

/// Reports that a recording is not beside the repository, which has only some of them: its
/// statements are not tested. That is never a failure, since a checkout alone must pass.
pub fn recording_is_missing(name: &str) {
    note(&format!(
        "the recording {name} is not beside the repository"
    ));
}

/// Prints the reason, and appends it to the file that `TEST_SKIPS` names, from which `make test`
/// lists at its end what was skipped.
fn note(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    eprintln!("skipped: {test}: {why}");
    let Some(path) = std::env::var_os("TEST_SKIPS") else {
        return;
    };
    let line = format!("{test}: {}\n", why.lines().next().unwrap_or_default());
    let mut file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(path)
        .unwrap();
    file.write_all(line.as_bytes()).unwrap();
}
