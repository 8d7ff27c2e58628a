//! The prompt: reads, runs, prints, until there is nothing more to read.
//!
//! Invariants: data go to stdout, everything else to stderr; a mistake is reported and the prompt
//! goes
//! on, unless the input is no terminal: then the command fails in the end. History is kept for
//! terminals only.

use super::helper::{SqlHelper, quoted};
use crate::failure::Failure;
use crate::grid::grouped;
use crate::sql_client::{Session, Shape, print_rows};
use arrow::array::RecordBatch;
use clap::ValueEnum;
use headwater_columnar::{Cells, TimeText};
use rustyline::config::Configurer;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Instant;

const HISTORY_MAX: usize = 1_000;

const HELP: &str = "\
  SELECT … ;          run a statement; it ends with a semicolon and may have several lines
  COPY (SELECT …) TO 'FILE.parquet' ;   write rows into a file: json, csv, arrow, parquet
  \\dt                 the tables
  \\d [TABLE]          the columns of a table
  \\timing             turn the timing of statements on or off
  \\format SHAPE       table, json or csv
  \\q                  end; so does Ctrl-D
";

/// State of the prompt.
struct Prompt<'a> {
    session: &'a Session,
    shape: Shape,
    timing: bool,
}

/// The prompt's next step.
#[derive(PartialEq, Eq)]
enum Next {
    Continue,
    End,
}

pub(super) fn run(session: &Session) -> Result<(), Failure> {
    let is_terminal = std::io::stdin().is_terminal();
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .auto_add_history(true)
        .build();
    let mut editor: Editor<SqlHelper, FileHistory> =
        Editor::with_config(config).map_err(Failure::failed)?;
    editor
        .set_max_history_size(HISTORY_MAX)
        .map_err(Failure::failed)?;
    let mut prompt = Prompt {
        session,
        shape: Shape::Table,
        timing: false,
    };
    // Also reports at once when there is no server.
    editor.set_helper(Some(prompt.names()?));
    let history = is_terminal.then(history_file).flatten();
    if let Some(history) = &history {
        // There is none before the first time.
        let _ = editor.load_history(history);
        eprintln!("headwater {}; \\? for help", env!("CARGO_PKG_VERSION"));
    }
    let mut failures = 0u32;
    loop {
        let text = match editor.readline(if is_terminal { "headwater> " } else { "" }) {
            Ok(text) => text,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(Failure::failed(error)),
        };
        match prompt.add_line(text.trim()) {
            Ok(Next::Continue) => {}
            Ok(Next::End) => break,
            Err(Failure::ClosedPipe) => return Err(Failure::ClosedPipe),
            Err(Failure::Failed(message) | Failure::Usage(message)) => {
                failures += 1;
                eprintln!("error: {message}");
            }
            Err(Failure::Reported) => failures += 1,
        }
        let changes = ["create", "alter", "drop", "insert"];
        let first = text.split_whitespace().next().unwrap_or_default();
        if is_terminal && changes.iter().any(|w| first.eq_ignore_ascii_case(w)) {
            // Names that cannot be read are only not offered.
            editor.set_helper(prompt.names().ok());
        }
    }
    if let Some(history) = &history
        && let Some(folder) = history.parent()
    {
        let saved = std::fs::create_dir_all(folder)
            .map_err(ReadlineError::from)
            .and_then(|()| editor.save_history(history));
        if let Err(error) = saved {
            eprintln!("headwater: the history cannot be saved: {error}");
        }
    }
    if failures > 0 && !is_terminal {
        return Err(Failure::Reported);
    }
    Ok(())
}

/// File of the prompt's history.
fn history_file() -> Option<PathBuf> {
    let state = match std::env::var_os("XDG_STATE_HOME") {
        Some(state) => PathBuf::from(state),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".local/state"),
    };
    Some(state.join("headwater/sql_history"))
}

impl Prompt<'_> {
    fn add_line(&mut self, text: &str) -> Result<Next, Failure> {
        let Some(command) = text.strip_prefix('\\') else {
            self.run(text)?;
            return Ok(Next::Continue);
        };
        let (name, rest) = command
            .split_once(char::is_whitespace)
            .unwrap_or((command, ""));
        let rest = rest.trim().trim_end_matches(';');
        match (name.trim_end_matches(';'), rest) {
            ("q" | "quit" | "exit", "") => return Ok(Next::End),
            ("?" | "h" | "help", _) => eprint!("{HELP}"),
            ("dt", "") | ("d", "") => self.run("SHOW TABLES")?,
            ("d", table) => self.run(&columns_of(table))?,
            ("timing", "") => {
                self.timing = !self.timing;
                eprintln!("timing is {}", if self.timing { "on" } else { "off" });
            }
            ("format", shape) => match Shape::from_str(shape, true) {
                Ok(shape @ (Shape::Table | Shape::Json | Shape::Csv)) => self.shape = shape,
                _ => return Err(Failure::failed("\\format: expected table, json or csv")),
            },
            _ => {
                return Err(Failure::failed(format!(
                    "there is no command `\\{command}`; \\? lists them"
                )));
            }
        }
        Ok(Next::Continue)
    }

    fn run(&self, sql: &str) -> Result<(), Failure> {
        let begun = Instant::now();
        self.session.run_all(sql, &[], |rows| {
            let count = print_rows(rows, self.shape)?;
            if self.shape == Shape::Table {
                let rows = if count == 1 { "row" } else { "rows" };
                eprintln!("({} {rows})", grouped(count));
            }
            Ok(())
        })?;
        if self.timing {
            eprintln!("time: {:.3} ms", begun.elapsed().as_secs_f64() * 1e3);
        }
        Ok(())
    }

    /// Tables and columns, for completion.
    fn names(&self) -> Result<SqlHelper, Failure> {
        let sql = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public' ORDER BY table_name, ordinal_position";
        let mut helper = SqlHelper::default();
        self.session.run_all(sql, &[], |rows| {
            for batch in rows.batches {
                let batch: RecordBatch = batch.map_err(Failure::failed)?;
                let [tables, columns] = [0, 1].map(|k| Cells::of(batch.column(k)));
                let tables = tables.map_err(Failure::failed)?;
                let columns = columns.map_err(Failure::failed)?;
                for row in 0..batch.num_rows() {
                    for (cells, names) in [
                        (&tables, &mut helper.tables),
                        (&columns, &mut helper.columns),
                    ] {
                        let name = quoted(&cells.text(row, TimeText::Rfc3339));
                        if !names.contains(&name) {
                            names.push(name);
                        }
                    }
                }
            }
            Ok(())
        })?;
        Ok(helper)
    }
}

/// Statement for the columns of a table, by its name as it is or in quotes.
fn columns_of(table: &str) -> String {
    let name = match table.strip_prefix('"').and_then(|t| t.strip_suffix('"')) {
        Some(inner) => inner.replace("\"\"", "\""),
        None => table.to_owned(),
    };
    format!("SHOW COLUMNS FROM {}", quoted(&name))
}
