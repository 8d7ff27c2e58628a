//! What the Makefile runs.

use std::io::Write;
use std::process::{Command, Stdio};
use tidy::{assert_none, read, root};

/// A comma in an argument of `call` cuts it, and a quote is then left open: such a target fails at
/// once, but only whoever runs it sees that.
#[test]
fn every_target_of_the_makefile_is_written_so_that_the_shell_can_read_it() {
    let makefile = read("Makefile");
    let targets = makefile.lines().filter_map(|line| {
        let (name, rest) = line.split_once(':')?;
        let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
        (is_name && !rest.starts_with('=') && !rest.trim_start().starts_with("SEED"))
            .then_some(name)
    });
    let mut wrong = Vec::new();
    let mut looked_at = 0;
    for target in targets {
        looked_at += 1;
        let printed = Command::new("make")
            .current_dir(root())
            .env_remove("MAKEFLAGS")
            .env_remove("MAKELEVEL")
            .args(["--dry-run", "--no-print-directory", "--always-make", target])
            .output()
            .unwrap();
        if !printed.status.success() {
            let told = String::from_utf8_lossy(&printed.stderr).into_owned();
            wrong.push(format!("make {target}: {told}"));
            continue;
        }
        let mut shell = Command::new("bash")
            .arg("-n")
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        shell
            .stdin
            .take()
            .unwrap()
            .write_all(&printed.stdout)
            .unwrap();
        let read = shell.wait_with_output().unwrap();
        if !read.status.success() {
            let told = String::from_utf8_lossy(&read.stderr).into_owned();
            wrong.push(format!("make {target}: {told}"));
        }
    }
    assert!(looked_at > 20, "only {looked_at} targets were found");
    assert_none("commands that the shell cannot read", &wrong);
}
