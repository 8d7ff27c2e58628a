//! Backup beside a running import, the import killed, the backup restored: what was acknowledged before the backup is in it.

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
        // Blocks while the import is behind by more than its queues hold: so much of it is acknowledged.
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
