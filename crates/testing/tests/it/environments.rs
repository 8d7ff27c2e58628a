//! Environments of packages: made once, whoever asks, and whole or not there.

use headwater_testing::{or_skip, run, until};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Makes a package with one module and one program, so that nothing is fetched.
const WHEEL: &str = r"
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], 'w') as wheel:
    wheel.writestr('pump.py', 'def main():\n    import sys\n    print(sys.prefix)\n')
    info = 'pump-1.0.dist-info/'
    wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\nName: pump\nVersion: 1.0\n')
    wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
    wheel.writestr(info + 'entry_points.txt', '[console_scripts]\npump = pump:main\n')
    wheel.writestr(info + 'RECORD', '')
";

/// A cache of environments, and a package.
struct Bench {
    dir: tempfile::TempDir,
    wheel: PathBuf,
}

impl Bench {
    fn new() -> Option<Bench> {
        let mut python = Command::new("python3");
        or_skip(run(python.args(["-c", "import venv, ensurepip"])))?;
        let dir = tempfile::tempdir().unwrap();
        let wheel = dir.path().join("pump-1.0-py3-none-any.whl");
        run(Command::new("python3").args(["-c", WHEEL]).arg(&wheel)).unwrap();
        Some(Bench { dir, wheel })
    }

    fn ask(&self, more: &[&str]) -> Child {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/environment");
        Command::new(script)
            .args(more)
            .args(["python", "--no-index"])
            .arg(&self.wheel)
            .env("TEST_CACHE", self.dir.path().join("cache"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Environments that are there, whole or not.
    fn environments(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.dir.path().join("cache")) else {
            return Vec::new();
        };
        let mut found: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
        found.retain(|path| path.is_dir());
        found
    }
}

fn answer(child: Child) -> PathBuf {
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end())
}

/// Its Python and the programs of its packages run, and know where they are.
fn assert_whole(folder: &Path) {
    let prefix = run(&mut Command::new(folder.join("bin/pump"))).unwrap();
    assert_eq!(Path::new(prefix.trim_end()), folder);
    let mut python = Command::new(folder.join("bin/python"));
    let prefix = run(python.args(["-c", "import pump; pump.main()"])).unwrap();
    assert_eq!(Path::new(prefix.trim_end()), folder);
}

#[test]
fn eight_processes_that_ask_at_once_get_one_environment() {
    let Some(bench) = Bench::new() else { return };
    let all: Vec<Child> = (0..8).map(|_| bench.ask(&[])).collect();
    let mut told: Vec<PathBuf> = all.into_iter().map(answer).collect();
    told.dedup();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(bench.environments(), told);
    assert_whole(&told[0]);
    // Who changes it further has one of their own.
    let private = answer(bench.ask(&["--for", "here"]));
    assert_ne!(private, told[0]);
    assert_whole(&private);
}

#[test]
fn one_whose_making_was_killed_is_made_again() {
    let Some(bench) = Bench::new() else { return };
    let is_half_made = || bench.environments().iter().any(|m| m.extension().is_some());
    for round in 0..4u64 {
        let mut child = bench.ask(&[]);
        until("it is being made", is_half_made);
        std::thread::sleep(Duration::from_millis(200 * round));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let folder = answer(bench.ask(&[]));
    assert_eq!(bench.environments(), std::slice::from_ref(&folder));
    assert_whole(&folder);
    // Nothing that a killed one had started comes back.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(bench.environments(), std::slice::from_ref(&folder));
    assert_whole(&folder);
}

#[test]
fn packages_that_there_are_not_are_an_error_and_leave_no_environment() {
    let Some(bench) = Bench::new() else { return };
    std::fs::write(&bench.wheel, "this is no package").unwrap();
    let output = bench.ask(&[]).wait_with_output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
    let made = bench.environments();
    assert!(made.iter().all(|m| m.extension().is_some()), "{made:?}");
}
