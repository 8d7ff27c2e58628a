//! Checking, backing up, restoring and repairing a database in a directory.

use crate::errors::Outcome;
use headwater::{BackupReport, CheckReport, Options, RepairMode};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;

fn check_report<'py>(py: Python<'py>, report: &CheckReport) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    let damages: Vec<(PathBuf, u64, String)> = report
        .damages
        .iter()
        .map(|d| (d.file.clone(), d.offset, d.to_string()))
        .collect();
    out.set_item("damages", damages)?;
    out.set_item("segments", report.segments)?;
    out.set_item("leaves", report.leaves)?;
    out.set_item("blocks", report.blocks)?;
    out.set_item("rows", report.rows)?;
    out.set_item("log_records", report.log_records)?;
    Ok(out)
}

/// A report of a backup, by name.
pub(crate) fn backup_report<'py>(
    py: Python<'py>,
    report: &BackupReport,
) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("number", report.number)?;
    out.set_item("sequence", report.sequence)?;
    out.set_item("files", report.files)?;
    out.set_item("bytes", report.bytes)?;
    out.set_item("bytes_copied", report.bytes_copied)?;
    Ok(out)
}

/// Verifies every byte of the database in a directory.
#[pyfunction]
pub(crate) fn check(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    let report = py.detach(|| -> Outcome<_> { Ok(headwater::check(Options::new(path))?) })?;
    check_report(py, &report)
}

/// Backs the database in a directory up.
#[pyfunction]
pub(crate) fn backup(py: Python<'_>, path: PathBuf, to: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    let report =
        py.detach(|| -> Outcome<_> { Ok(headwater::backup(&Options::new(path), &to)?) })?;
    backup_report(py, &report)
}

/// Checks a backup.
#[pyfunction]
pub(crate) fn verify_backup(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    let report = py.detach(|| -> Outcome<_> { Ok(headwater::verify_backup(&path)?) })?;
    check_report(py, &report)
}

/// Restores a database from a backup.
#[pyfunction]
pub(crate) fn restore(
    py: Python<'_>,
    backup: PathBuf,
    path: PathBuf,
) -> PyResult<Bound<'_, PyDict>> {
    let report =
        py.detach(|| -> Outcome<_> { Ok(headwater::restore(&backup, &Options::new(path))?) })?;
    check_report(py, &report)
}

/// Repairs the database in a directory, or with `dry_run` only reports the repairs.
#[pyfunction]
pub(crate) fn repair(py: Python<'_>, path: PathBuf, dry_run: bool) -> PyResult<Bound<'_, PyDict>> {
    let mode = if dry_run {
        RepairMode::DryRun
    } else {
        RepairMode::Act
    };
    let report =
        py.detach(|| -> Outcome<_> { Ok(headwater::repair(&Options::new(path), mode)?) })?;
    let out = PyDict::new(py);
    let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    out.set_item("findings", findings)?;
    out.set_item("lost", &report.lost)?;
    out.set_item("quarantined", &report.quarantined)?;
    out.set_item("after", check_report(py, &report.after)?)?;
    Ok(out)
}
