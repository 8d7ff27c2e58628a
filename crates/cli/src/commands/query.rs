//! `headwater query`: statements of SQL from the command line.

use crate::failure::Failure;
use clap::Args;

/// Query a database on this machine or a server in SQL
#[derive(Debug, Args)]
#[command(after_help = "\
COPY (SELECT …) TO 'FILE.parquet' writes a file (json, csv, arrow, parquet). Statements are separated by semicolons.

Examples:
  headwater query --db ./data 'SELECT origin, avg(temp) FROM weather GROUP BY origin'
  headwater query --url http://127.0.0.1:7373 --format csv \"SELECT * FROM weather WHERE time >= now() - INTERVAL '1 day'\"
  headwater query --db ./data \"COPY weather TO 'weather.parquet'\"
  headwater query --db ./data --param JFK 'SELECT count(*) FROM weather WHERE origin = $1'")]
pub(crate) struct Query {
    #[cfg(feature = "sql")]
    #[command(flatten)]
    target: crate::sql_client::QueryTarget,

    /// Format of the rows
    #[cfg(feature = "sql")]
    #[arg(long, value_enum, default_value_t = crate::sql_client::Shape::Table)]
    format: crate::sql_client::Shape,

    /// Value of $1, the next one of $2, and so on; may be repeated
    #[cfg(feature = "sql")]
    #[arg(long = "param", value_name = "VALUE", allow_hyphen_values = true)]
    parameters: Vec<String>,

    /// The statements; - reads them from stdin
    #[cfg(feature = "sql")]
    #[arg(value_name = "SQL")]
    sql: String,

    /// Any arguments, to report that SQL was not built in
    #[cfg(not(feature = "sql"))]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _arguments: Vec<String>,
}

impl Query {
    #[cfg(not(feature = "sql"))]
    pub(crate) fn run(self) -> Result<(), Failure> {
        Err(crate::output::built_without("query"))
    }

    #[cfg(feature = "sql")]
    pub(crate) fn run(self) -> Result<(), Failure> {
        use crate::sql_client::print_rows;
        let sql = match self.sql.as_str() {
            "-" => std::io::read_to_string(std::io::stdin())
                .map_err(|error| Failure::failed(format!("cannot read stdin: {error}")))?,
            _ => self.sql,
        };
        let session = self.target.open()?;
        session.run_all(&sql, &self.parameters, |rows| {
            print_rows(rows, self.format).map(|_| ())
        })
    }
}
