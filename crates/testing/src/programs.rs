//! Programs of others, and environments of packages for them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a program; what it printed, or why it failed.
pub fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !output.status.success() {
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        return Err(format!("{command:?}: {}\n{stdout}{stderr}", output.status));
    }
    Ok(text(&output.stdout))
}

/// Where `tools/setup` puts what no package of a distribution has.
fn tools() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    Some(cache?.join("headwater/tools/bin"))
}

/// Where a program is: in the path, or where `tools/setup` puts it.
pub fn installed(program: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(tools());
    let mut found = folders.map(|folder| folder.join(program));
    found
        .find(|program| program.is_file())
        .ok_or_else(|| format!("{program} is not installed; tools/setup test does"))
}

fn environment(kind: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/environment");
    let printed = run(Command::new(script).arg(kind).args(packages))?;
    Ok(PathBuf::from(printed.trim_end()))
}

/// Packages of PyPI that read lakes: DuckDB, with its extensions as packages, and pyiceberg.
pub const LAKE_READERS: [&str; 8] = [
    "duckdb==1.5.5",
    "duckdb-extensions==1.5.5",
    "duckdb-extension-avro==1.5.5",
    "duckdb-extension-httpfs==1.5.5",
    "duckdb-extension-iceberg==1.5.5",
    "duckdb-extension-parquet==1.5.5",
    "pyiceberg==0.12.0",
    "pyarrow==26.0.1",
];

/// A Python that has these packages of PyPI.
pub fn python(packages: &[&str]) -> Result<PathBuf, String> {
    Ok(environment("python", packages)?.join("bin/python"))
}

/// A folder with these packages of npm.
pub fn node_packages(packages: &[&str]) -> Result<PathBuf, String> {
    environment("node", packages)
}
