//! Data on stdout.

use crate::failure::Failure;
use clap::ValueEnum;
use std::io::{self, BufWriter, StdoutLock, Write};

/// Format of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    // Aligned columns, for reading
    Table,
    // JSON, for programs
    Json,
    // CSV with a header line
    Csv,
}

/// Format of rows of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RowFormat {
    // Comma-separated values
    Csv,
    // InfluxDB line protocol
    Lp,
    // Arrow's stream format
    Arrow,
    // Parquet
    Parquet,
}

/// Failure of a command whose feature was not built in.
#[cfg(not(feature = "sql"))]
pub(crate) fn built_without(what: &str) -> Failure {
    Failure::failed(format!(
        "{what}: this program was built without SQL, Arrow and Parquet (the feature `sql`)"
    ))
}

/// Collects bytes for stdout. [`Output::finish`] must be called last.
pub(crate) struct Output {
    inner: BufWriter<StdoutLock<'static>>,
    /// Rows not handed on yet.
    pub(crate) buffer: Vec<u8>,
}

impl Output {
    pub(crate) fn new() -> Output {
        Output {
            inner: BufWriter::with_capacity(1 << 16, io::stdout().lock()),
            buffer: Vec::new(),
        }
    }

    /// Hands on what is in the buffer once it is large.
    pub(crate) fn pass_on(&mut self) -> Result<(), Failure> {
        if self.buffer.len() >= 1 << 16 {
            self.inner.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Hands on all that is there.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.inner.write_all(&self.buffer)?;
        self.buffer.clear();
        self.inner.flush()?;
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.inner.write_all(&self.buffer)?;
        self.inner.flush()?;
        Ok(())
    }
}

/// Refuses to print bytes that no terminal can show.
#[cfg(feature = "sql")]
pub(crate) fn not_for_terminals(what: &str) -> Result<(), Failure> {
    if io::IsTerminal::is_terminal(&io::stdout()) {
        return Err(Failure::usage(format!(
            "{what} is not for terminals: send it to a file, as in `headwater … > FILE`"
        )));
    }
    Ok(())
}

/// Prints a whole text.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Prints a value as JSON on lines of its own.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::failed)?;
    print(&format!("{text}\n"))
}
