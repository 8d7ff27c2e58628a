//! Programs of others that read what Headwater writes, in Pythons of their own.
//!
//! Packages come from PyPI, once, into the target folder. Where they cannot be installed a test
//! says so and passes, unless `TEST_CLIENTS=required`, which CI sets.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Runs a program; what it printed, or why it failed.
pub(crate) fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !output.status.success() {
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        return Err(format!("{command:?}: {}\n{stdout}{stderr}", output.status));
    }
    Ok(text(&output.stdout))
}

/// A Python that has the packages, in a folder of this name. They are installed by one test;
/// others wait for it.
pub(crate) fn python(name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("python-{name}"));
    let (python, done) = (folder.join("bin/python"), folder.join("done"));
    if done.exists() {
        return Ok(python);
    }
    let mut venv = Command::new("python3");
    run(venv.args(["-m", "venv", "--clear"]).arg(&folder))?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--retries", "1"])
        .args(["--timeout", "60"]);
    run(pip.args(packages))?;
    std::fs::write(&done, "").map_err(|e| e.to_string())?;
    Ok(python)
}

/// What a test needs, or nothing where it is missing and need not be there.
pub(crate) fn or_skip<T>(found: Result<T, String>) -> Option<T> {
    match found {
        Ok(found) => Some(found),
        Err(why) => {
            let required = std::env::var("TEST_CLIENTS").as_deref() == Ok("required");
            assert!(!required, "{why}");
            eprintln!("skipped: {why}");
            None
        }
    }
}
