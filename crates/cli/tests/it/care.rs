//! Backup beside a running import, the import killed, the backup restored: what was acknowledged
//! before the backup is in it.

use crate::kill::{UNACKNOWLEDGED_BYTES_MAX, check, kill, line, open, rows_without_holes};
use crate::support::{Bench, program};
use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

fn run(command: &str, db: &Path, arguments: &[&std::ffi::OsStr]) -> Output {
    program()
        .arg(command)
        .arg("--db")
        .arg(db)
        .args(arguments)
        .output()
        .unwrap()
}

fn ok(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn a_backup_beside_an_import_that_is_killed() {
    let bench = Bench::new();
    let backup = bench.path("backup");
    let mut import = program()
        .args(["import", "--format", "lp", "--precision", "ns"])
        .args(["--memory", "1MiB", "--db"])
        .arg(bench.db())
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = import.stdin.take().unwrap();
    let mut import = Some(import);
    let (mut number, mut bytes) = (0, 0);
    let mut ends = Vec::new();
    for round in 0..4 {
        // Blocks while the import is behind by more than its queues hold: so much of it is
        // acknowledged.
        while bytes < (round + 1) * (1 << 20) {
            let line = line(number);
            input.write_all(line.as_bytes()).unwrap();
            bytes += line.len() as u64;
            ends.push(bytes);
            number += 1;
        }
        let acknowledged = ends
            .partition_point(|end| *end <= bytes.saturating_sub(UNACKNOWLEDGED_BYTES_MAX))
            as u64;
        ok(&run(
            "backup",
            &bench.db(),
            &[backup.as_os_str(), "--verify".as_ref()],
        ));
        // Reading commands work beside the import too.
        ok(&run("stat", &bench.db(), &[]));
        if round == 3 {
            import.take().map(kill).unwrap();
        }
        let restored = bench.path(&format!("restored-{round}"));
        let text = ok(&run("restore", &restored, &[backup.as_os_str()]));
        assert!(text.starts_with("sound"), "{text}");
        check(&restored, 0);
        let db = open(&restored);
        let rows = rows_without_holes(&db, 0);
        db.close().unwrap();
        assert!(
            acknowledged <= rows && rows <= number,
            "round {round}: {acknowledged} {rows} {number}"
        );
    }
    check(&bench.db(), 1);
    // A closed database, and a folder that is taken.
    open(&bench.db()).close().unwrap();
    ok(&run("backup", &bench.db(), &[backup.as_os_str()]));
    let refused = run("restore", &bench.db(), &[backup.as_os_str()]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("not empty"));
}

#[test]
fn a_damaged_database_is_repaired_when_told_so() {
    let bench = Bench::new();
    let rows: String = (0..20_000).map(line).collect();
    bench.import_lines(&rows).ok();
    std::fs::remove_file(bench.db().join("meta.redb")).unwrap();
    let refused = run("check", &bench.db(), &[]);
    assert_eq!(refused.status.code(), Some(1));
    let said = ok(&run("repair", &bench.db(), &[]));
    assert!(
        said.contains("damaged: ") && said.contains("meta.redb"),
        "{said}"
    );
    assert!(!bench.db().join("meta.redb").exists());
    let said = ok(&run("repair", &bench.db(), &["--yes".as_ref()]));
    assert!(
        said.lines().last().unwrap().starts_with("sound: "),
        "{said}"
    );
    assert!(!said.contains("lost: "), "{said}");
    check(&bench.db(), 0);
    let db = open(&bench.db());
    assert_eq!(rows_without_holes(&db, 0), 20_000);
    db.close().unwrap();
    drop(db);
    let said = ok(&run("repair", &bench.db(), &["--yes".as_ref()]));
    assert!(said.starts_with("sound: "), "{said}");
}

#[test]
fn a_database_with_a_damaged_segment_is_read_told_of_backed_up_and_repaired() {
    let bench = Bench::new();
    let rows: String = (0..20_000).map(line).collect();
    bench.import_lines(&rows).ok();
    let backup = bench.path("backup");
    ok(&run("backup", &bench.db(), &[backup.as_os_str()]));
    let segment = std::fs::read_dir(bench.db().join("segment")).unwrap();
    let segment = segment.map(|e| e.unwrap().path()).max().unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&segment, &bytes).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = ok(&run("stat", &bench.db(), &[]));
    assert!(
        said.contains("unreadable") && said.contains("headwater repair"),
        "{said}"
    );
    let said = ok(&run(
        "stat",
        &bench.db(),
        &["--format".as_ref(), "json".as_ref()],
    ));
    assert!(said.contains("\"partitions_unreadable\": 1"), "{said}");
    let checked = run("check", &bench.db(), &[]);
    assert_eq!(checked.status.code(), Some(1));
    let name = segment.to_str().unwrap();
    assert!(text(&checked.stdout).contains(name), "{checked:?}");
    // Nothing has been changed, so nothing says that it was.
    assert!(!text(&checked.stderr).contains("quarantine"), "{checked:?}");
    // The good copy stays, and the damage is told.
    for verify in [
        &[backup.as_os_str()][..],
        &[backup.as_os_str(), "--verify".as_ref()],
    ] {
        let taken = run("backup", &bench.db(), verify);
        assert_eq!(taken.status.code(), Some(1), "{taken:?}");
        let said = text(&taken.stdout);
        assert!(
            said.contains("damaged in the database: ") && said.contains(name),
            "{said}"
        );
    }
    let restored = bench.path("restored");
    let said = ok(&run("restore", &restored, &[backup.as_os_str()]));
    assert!(said.starts_with("sound"), "{said}");
    check(&restored, 0);
    let said = ok(&run("repair", &bench.db(), &["--yes".as_ref()]));
    assert!(!said.contains("lost: "), "{said}");
    check(&bench.db(), 0);
    for db in [&restored, &bench.db()] {
        let db = open(db);
        assert_eq!(rows_without_holes(&db, 0), 20_000);
        db.close().unwrap();
    }
    // What decays in the backup is put right.
    let copy = std::fs::read_dir(backup.join("segment")).unwrap();
    let copy = copy.map(|e| e.unwrap().path()).max().unwrap();
    let mut bytes = std::fs::read(&copy).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&copy, &bytes).unwrap();
    let taken = run(
        "backup",
        &bench.db(),
        &[backup.as_os_str(), "--verify".as_ref()],
    );
    ok(&taken);
}

#[test]
fn a_fast_tier_is_used_lost_and_given_up_on_the_command_line() {
    let bench = Bench::new();
    let fast = bench.path("fast");
    let tier = |words: &[&str], folder: Option<&Path>| {
        let mut command = program();
        command.arg("tier").args(words).arg("--db").arg(bench.db());
        if let Some(folder) = folder {
            command.arg("--fast").arg(folder);
        }
        command.output().unwrap()
    };
    let lines: String = (0..500).map(line).collect();
    let file = bench.path("lines");
    std::fs::write(&file, lines).unwrap();
    let import = ["--format", "lp", "--precision", "ns"].map(std::ffi::OsStr::new);
    let import = [&import[..], &[file.as_os_str()]].concat();
    ok(&run("import", &bench.db(), &import));
    assert_eq!(ok(&tier(&["show"], None)), "fast: none\n");
    let used = ok(&tier(&["use"], Some(&fast)));
    assert_eq!(used, format!("fast: {} (log,pins)\n", fast.display()));
    ok(&run("import", &bench.db(), &import));
    assert!(fast.join("tier").exists() && !bench.db().join("log/1.log").exists());

    // Somewhere else, and said to be.
    let moved = bench.path("moved");
    std::fs::rename(&fast, &moved).unwrap();
    let refused = run("check", &bench.db(), &[]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{message}");
    assert!(message.contains("headwater tier adopt"), "{message}");
    ok(&tier(&["adopt"], Some(&moved)));
    ok(&run("check", &bench.db(), &[]));

    // Lost for good: told first, then given up. The import had been closed, so nothing is gone.
    std::fs::remove_dir_all(&moved).unwrap();
    let lost = "--fast-tier-lost".as_ref();
    assert!(ok(&run("repair", &bench.db(), &[lost])).starts_with("sound"));
    let shown = ok(&tier(&["show"], None));
    assert!(
        shown.contains("moved") && shown.contains("cannot be written to"),
        "{shown}"
    );
    assert!(ok(&run("repair", &bench.db(), &[lost, "--yes".as_ref()])).starts_with("sound"));
    assert_eq!(ok(&tier(&["show"], None)), "fast: none\n");
    let db = open(&bench.db());
    assert_eq!(rows_without_holes(&db, 0), 500);
    drop(db);
    ok(&tier(&["use", "--parts", "log"], Some(&fast)));
    assert_eq!(ok(&tier(&["leave"], None)), "fast: none\n");
    assert!(!fast.join("tier").exists());
    let wrong = tier(&["use", "--parts", "segments"], Some(&fast));
    assert_eq!(wrong.status.code(), Some(2));
}
