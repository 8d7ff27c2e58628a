//! The example in C, compiled against the header with every warning an error, linked statically and
//! dynamically, and run; and what the libraries let others see.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_dir.ancestors().nth(2).unwrap().to_owned()
}

/// Where cargo put the libraries that belong to this test.
fn libraries() -> PathBuf {
    let me = std::env::current_exe().unwrap();
    let dir = me.parent().unwrap().to_owned();
    assert!(
        dir.join("libheadwater_ffi.a").is_file() && dir.join("libheadwater_ffi.so").is_file(),
        "no libraries in {}",
        dir.display()
    );
    dir
}

fn run(command: &mut Command) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Compiles the example.
fn compile(program: &Path, flags: &[&str], libraries: &[&str]) -> Command {
    let example = root().join("examples/c/pumps.c");
    compile_source(&example, program, flags, libraries)
}

fn compile_source(source: &Path, program: &Path, flags: &[&str], libraries: &[&str]) -> Command {
    let mut cc = Command::new("cc");
    cc.args([
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-g",
    ])
    .args(flags)
    .arg(source)
    .arg("-I")
    .arg(root().join("crates/ffi/include"))
    .args(libraries)
    .args(["-lm", "-ldl", "-lpthread", "-o"])
    .arg(program);
    cc
}

const EXPECTED: &str = "\
wrote 7200 rows
row 0 refused: E_TYPE
read 10 rows of pumps,id=p2,site=north
  1700003590 7.590
  1700003592 7.592
  1700003594 7.594
  1700003596 7.596
  1700003598 7.598
scanned 898 rows above 7
  1700000000 count 1200 min 4.000 max 5.199 mean 4.5995
  1700001200 count 1200 min 5.200 max 6.399 mean 5.7995
  1700002400 count 1200 min 6.400 max 7.599 mean 6.9995
the tile has 225 buckets with 3600 values
newest pressure at 1700003599: 7.599
newest running at 1700003599: false
not_found: table `pumps` has no field `colour`; it has: pressure, running
released twice: handle
handles left: 0
";

/// Runs the compiled example; what it says is the same every time.
fn check(program: &Path, prepare: impl FnOnce(&mut Command)) {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    command.arg(dir.path().join("pumps.db"));
    prepare(&mut command);
    let output = run(&mut command);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), EXPECTED);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn the_example_runs_linked_statically() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("pumps");
    let archive = libraries().join("libheadwater_ffi.a");
    run(&mut compile(&program, &[], &[archive.to_str().unwrap()]));
    check(&program, |_| {});
}

#[test]
fn the_example_runs_linked_dynamically() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("pumps");
    let folder = libraries();
    let search = format!("-L{}", folder.display());
    run(&mut compile(&program, &[], &[&search, "-lheadwater_ffi"]));
    check(&program, |command| {
        command.env("LD_LIBRARY_PATH", &folder);
    });
}

#[test]
fn the_program_on_the_page_runs() {
    let page = std::fs::read_to_string(root().join("docs/embed/c.md")).unwrap();
    let (_, rest) = page.split_once("```c\n").unwrap();
    let (text, _) = rest.split_once("```\n").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("page.c"), dir.path().join("page"));
    std::fs::write(&source, text).unwrap();
    let archive = libraries().join("libheadwater_ffi.a");
    let archive = archive.to_str().unwrap();
    run(&mut compile_source(&source, &program, &[], &[archive]));
    let output = run(Command::new(&program).current_dir(dir.path()));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "2 rows\n");
}

/// Whether programs can be linked with these flags here. They can with the compilers that
/// `tools/setup` installs.
fn available(flags: &[&str]) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("empty.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let mut cc = Command::new("cc");
    cc.args(flags)
        .arg(&source)
        .arg("-o")
        .arg(dir.path().join("empty"));
    cc.output().unwrap().status.success()
}

#[test]
fn the_example_neither_leaks_nor_touches_what_is_not_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("pumps");
    let archive = libraries().join("libheadwater_ffi.a");
    let flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let found = available(&flags).then_some(());
    if headwater_testing::or_skip(found.ok_or("cc has no sanitizers".to_owned())).is_none() {
        return;
    }
    run(&mut compile(&program, &flags, &[archive.to_str().unwrap()]));
    check(&program, |command| {
        command.env("ASAN_OPTIONS", "detect_leaks=1");
    });
}

/// A child made by `fork` is refused, whatever it calls, and what its parent acknowledges before
/// and after is there when the parent is killed.
#[test]
fn a_forked_child_is_told_and_takes_nothing_from_its_parent() {
    use std::os::unix::process::ExitStatusExt;
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("fork");
    let source = root().join("crates/ffi/tests/c/fork.c");
    let archive = libraries().join("libheadwater_ffi.a");
    let archive = archive.to_str().unwrap();
    let flags = ["-D_POSIX_C_SOURCE=200809L"];
    run(&mut compile_source(&source, &program, &flags, &[archive]));
    let path = dir.path().join("db");
    let output = Command::new(&program).arg(&path).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.signal(), Some(9), "{told}");
    let child = "write: forked\nflush: forked\nsnapshot: forked\nopen: locked\nclose: forked\n";
    assert_eq!(told, format!("{child}the child ended with 0\n"));

    let db = headwater::Database::open(headwater::Options::new(&path)).unwrap();
    let stream = headwater::StreamName::new("t", [("id", "1")]);
    let rows: usize = db
        .snapshot()
        .unwrap()
        .scan(&stream, &headwater::ScanSpec::default())
        .unwrap()
        .map(|chunk| chunk.unwrap().times.len())
        .sum();
    assert_eq!(rows, 10, "the parent wrote so many, the child none");
}

#[test]
fn the_header_is_for_cpp_too() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("header.cpp");
    std::fs::write(
        &source,
        "#include \"headwater.h\"\n#include \"headwater.h\"\nint main() { return static_cast<int>(hw_nothing()); }\n",
    )
    .unwrap();
    run(Command::new("c++")
        .args([
            "-std=c++17",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fsyntax-only",
            "-I",
        ])
        .arg(root().join("crates/ffi/include"))
        .arg(&source));
}

/// The functions of the header.
fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(root().join("crates/ffi/include/headwater.h")).unwrap();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    header
        .lines()
        .filter(|line| !line.starts_with("//") && !line.starts_with([' ', '#', '*']))
        .filter(|line| !line.starts_with("static inline"))
        .filter_map(|line| line.split_once('('))
        .filter_map(|(before, _)| before.rsplit(|c| !is_name(c)).next())
        .filter(|name| name.starts_with("hw_"))
        .map(str::to_owned)
        .collect()
}

/// Names that a library defines for others.
fn defined(flags: &[&str], library: &str) -> BTreeSet<String> {
    let output = run(Command::new("nm")
        .args(flags)
        .arg(libraries().join(library)));
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| line.split_once(" T "))
        .map(|(_, name)| name.to_owned())
        .collect()
}

#[test]
fn the_libraries_offer_what_the_header_declares_and_nothing_else() {
    let declared = declared();
    assert!(
        declared.len() > 60 && declared.contains("hw_open"),
        "{declared:?}"
    );
    assert_eq!(
        defined(&["-D", "--defined-only"], "libheadwater_ffi.so"),
        declared
    );
    // An archive shows its insides too; those that are called as ours are.
    let archive = defined(&["--defined-only", "--extern-only"], "libheadwater_ffi.a");
    let ours: BTreeSet<String> = archive
        .into_iter()
        .filter(|n| n.starts_with("hw_"))
        .collect();
    assert_eq!(ours, declared);
}
