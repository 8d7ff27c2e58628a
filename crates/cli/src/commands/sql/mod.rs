//! `headwater sql`: statements of SQL, one after the other, at a prompt.

#[cfg(feature = "sql")]
mod helper;
#[cfg(feature = "sql")]
mod prompt;

use crate::failure::Failure;
use clap::Args;

/// Query in SQL at a prompt
#[derive(Debug, Args)]
#[command(after_help = "\
A statement ends with a semicolon and may have several lines; Tab completes tables, columns and words. \\? lists the
commands of the prompt: \\dt shows the tables, \\d TABLE its columns, \\timing how long statements take, \\q ends.

Examples:
  headwater sql --db ./data
  headwater sql --url http://127.0.0.1:7373")]
pub(crate) struct Sql {
    #[cfg(feature = "sql")]
    #[command(flatten)]
    target: crate::sql_client::QueryTarget,

    /// Any arguments, to report that SQL was not built in
    #[cfg(not(feature = "sql"))]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _arguments: Vec<String>,
}

impl Sql {
    #[cfg(not(feature = "sql"))]
    pub(crate) fn run(self) -> Result<(), Failure> {
        Err(crate::output::built_without("sql"))
    }

    #[cfg(feature = "sql")]
    pub(crate) fn run(self) -> Result<(), Failure> {
        prompt::run(&self.target.open()?)
    }
}
