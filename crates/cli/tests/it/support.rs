//! Runs the program in a directory of its own.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A database directory, a place for files, and the program.
pub(crate) struct Bench {
    dir: tempfile::TempDir,
}

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Fails the test unless the run succeeded.
    pub(crate) fn ok(self) -> Ran {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout))
    }

    pub(crate) fn of(output: Output) -> Ran {
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// The command, with none of the settings that whoever runs the tests may have in the environment.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"HEADWATER_") {
            command.env_remove(name);
        }
    }
    command.env_remove("COLUMNS");
    command
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.dir.path().join("db")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Runs `headwater COMMAND --db DB ARGUMENTS…`.
    pub(crate) fn run(&self, command: &str, arguments: &[&str]) -> Ran {
        self.run_with_input(command, arguments, b"")
    }

    /// As [`Bench::run`], for a command that must succeed and whose output is no text.
    #[cfg(feature = "sql")]
    pub(crate) fn run_bytes(&self, command: &str, arguments: &[&str]) -> Vec<u8> {
        let output = program()
            .args(command.split(' '))
            .arg("--db")
            .arg(self.db())
            .args(["--memory", "8MiB"])
            .args(arguments)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command} {arguments:?}: {stderr}");
        output.stdout
    }

    /// As [`Bench::run`], for a command that opens no database.
    pub(crate) fn run_without_memory(&self, command: &str, arguments: &[&str]) -> Ran {
        let mut program = program();
        program.args(command.split(' ')).arg("--db").arg(self.db());
        Ran::of(program.args(arguments).output().unwrap())
    }

    pub(crate) fn run_with_input(&self, command: &str, arguments: &[&str], input: &[u8]) -> Ran {
        let mut child = program()
            .args(command.split(' '))
            .arg("--db")
            .arg(self.db())
            .args(["--memory", "8MiB"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The program may end before it has read everything.
        let _ = child.stdin.take().unwrap().write_all(input);
        Ran::of(child.wait_with_output().unwrap())
    }

    /// Imports CSV text into table `t`, with the times in column `time`.
    pub(crate) fn import_csv(&self, text: &str, arguments: &[&str]) -> Ran {
        let mut all = vec!["--table", "t", "--time", "time"];
        all.extend_from_slice(arguments);
        all.push("-");
        self.run_with_input("import", &all, text.as_bytes())
    }

    pub(crate) fn import_lines(&self, text: &str) -> Ran {
        self.run_with_input(
            "import",
            &["--format", "lp", "--precision", "ns", "-"],
            text.as_bytes(),
        )
    }

    /// The table as CSV with times in nanoseconds.
    pub(crate) fn exported(&self, table: &str) -> String {
        self.run("export", &["--table", table, "--time-format", "ns"])
            .ok()
            .stdout
    }
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
