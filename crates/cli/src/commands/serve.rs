//! `headwater serve` and `headwater config`: the settings from everywhere, and the server that has
//! them.

use crate::failure::Failure;
use crate::grid::{Heading, render};
use crate::output::{print, print_json};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use headwater_server::settings::{Loaded, SettingsInput, load, table};
use serde::Serialize;
use std::io::IsTerminal;
use std::path::PathBuf;

/// A flag for each setting of the server, made of its table.
#[derive(Debug)]
struct SettingArgs {
    input: SettingsInput,
}

impl SettingArgs {
    fn load(&self) -> Result<Loaded, Failure> {
        load(&self.input).map_err(Failure::usage)
    }
}

impl Args for SettingArgs {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .help("Settings file in TOML; also HEADWATER_CONFIG")
            .value_parser(clap::value_parser!(PathBuf));
        table().fold(command.arg(file), |command, setting| {
            let arg = Arg::new(setting.key)
                .long(setting.flag())
                .value_name(setting.kind)
                .help(format!("{} [{}]", setting.about, setting.allowed))
                .allow_hyphen_values(true)
                .action(ArgAction::Set);
            command.arg(if setting.is_switch() {
                arg.num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value("true")
            } else {
                arg
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let flags = table().filter_map(|setting| {
            let value = matches.get_one::<String>(setting.key)?;
            Some((setting.key, value.clone()))
        });
        // A variable that is not text can be no setting of ours.
        let environment = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        let file = matches.get_one::<PathBuf>("config").cloned();
        Ok(SettingArgs {
            input: SettingsInput {
                file: file.or_else(|| std::env::var_os("HEADWATER_CONFIG").map(PathBuf::from)),
                flags: flags.collect(),
                environment: environment.collect(),
            },
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Serve a database over HTTP, until SIGTERM or SIGINT
#[derive(Debug, Args)]
#[command(after_help = "\
Every setting may also stand in the environment (HEADWATER_HTTP_ADDR) or in the file (http_addr, or [log] level = …); a flag
takes precedence over the environment, and that over the file. `headwater config` prints what is in force; see
docs/operate/settings.md. The address of the page is printed on stdout once the server answers. SIGTERM and SIGINT store
everything and stop it; SIGHUP reads certificates and tokens again.")]
pub(crate) struct Serve {
    #[command(flatten)]
    settings: SettingArgs,
}

impl Serve {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let settings = self.settings.load()?.settings;
        headwater_server::begin_logging(&settings);
        headwater_server::serve(settings, |url| {
            // The parent may have closed stdout; the log has the address too.
            let _ = print(&format!("{url}\n"));
            if std::io::stderr().is_terminal() {
                eprintln!("Open this address in a browser. Ctrl-C stops the server and closes the database.");
            }
        })
        .map_err(Failure::failed)
    }
}

/// Print every setting of the server, its value and its source
#[derive(Debug, Args)]
#[command(after_help = "\
Takes the same flags, environment and file as `headwater serve`, and fails with the same errors if they are wrong.")]
pub(crate) struct Config {
    #[command(flatten)]
    settings: SettingArgs,

    /// Format of the output
    #[arg(long, value_enum, default_value_t = ConfigFormat::Table)]
    format: ConfigFormat,
}

/// Format of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ConfigFormat {
    // For reading
    Table,
    // For programs
    Json,
}

#[derive(Serialize)]
struct Line {
    key: String,
    value: String,
    source: String,
}

impl Config {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let loaded = self.settings.load()?;
        let mut lines: Vec<Line> = table()
            .map(|setting| Line {
                key: setting.key.to_owned(),
                value: setting.value(&loaded.settings),
                source: loaded.source(setting).to_string(),
            })
            .collect();
        if let Some(file) = &self.settings.input.file {
            let source = file.display().to_string();
            lines.extend(loaded.entries().into_iter().map(|(key, value)| Line {
                key,
                value,
                source: source.clone(),
            }));
        }
        match self.format {
            ConfigFormat::Json => print_json(&lines),
            ConfigFormat::Table => {
                let headings = [
                    Heading::text("setting"),
                    Heading::text("value"),
                    Heading::text("from"),
                ];
                let rows: Vec<Vec<String>> = lines
                    .into_iter()
                    .map(|line| vec![line.key, line.value, line.source])
                    .collect();
                print(&render(&headings, &rows))
            }
        }
    }
}
