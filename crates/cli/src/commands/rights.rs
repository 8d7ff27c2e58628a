//! `headwater rights`: the list of rights that a cloud signs, and the one that a node has received.

use crate::arguments::parse_duration;
use crate::commands::sync::ListFormat;
use crate::commands::token::shown_tokens;
use crate::failure::Failure;
use crate::output::{print, print_json};
use clap::{Args, Subcommand};
use headwater_server::rights::keys::RightsKeys;
use headwater_server::rights::received::ReceivedFile;
use headwater_server::tokens::TokenFile;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Show the signed list of rights of a cloud, and change the key that signs it
#[derive(Debug, Args)]
#[command(after_help = "\
A cloud signs its list of tokens and sends it to its edges, which accept them for the streams that they have. Works while
a server runs. See docs/cluster/rights.md.

Examples:
  headwater rights show --db cloud.db         # the key that signs
  headwater rights show --db edge.db          # the tokens that were received
  headwater rights rotate --db cloud.db       # begin to change the key")]
pub(crate) struct Rights {
    #[command(subcommand)]
    command: RightsCommand,
}

#[derive(Debug, Subcommand)]
enum RightsCommand {
    Show(Show),
    Rotate(Rotate),
}

impl Rights {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.command {
            RightsCommand::Show(show) => show.run(),
            RightsCommand::Rotate(rotate) => rotate.run(),
        }
    }
}

/// Show the keys that sign the list here, and the list that was received
#[derive(Debug, Args)]
struct Show {
    /// Directory of the database
    #[arg(long, value_name = "DIR", env = "HEADWATER_DB", hide_env_values = true)]
    db: PathBuf,

    /// Format of the output
    #[arg(long, value_enum, default_value_t = ListFormat::Table)]
    format: ListFormat,
}

#[derive(Serialize)]
struct SignedShown {
    number: u64,
    key: String,
    next_key: Option<String>,
    next_key_at: Option<String>,
    rotations: usize,
}

#[derive(Serialize)]
struct ReceivedShown {
    number: u64,
    cloud: String,
    key: String,
    tokens: serde_json::Value,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl Show {
    fn signed(&self) -> Result<Option<SignedShown>, Failure> {
        let keys = RightsKeys::read(&self.db).map_err(Failure::failed)?;
        let file = TokenFile::of_database(&self.db);
        let tokens = file.read().map_err(Failure::failed)?;
        let (Some(keys), Some(tokens)) = (keys, tokens) else {
            return Ok(None);
        };
        let status = keys.status(&tokens, file.now());
        Ok(Some(SignedShown {
            number: tokens.list(),
            key: hex(&status.signs),
            next_key: status.next.as_ref().map(|(key, _)| hex(key)),
            next_key_at: status.next.map(|(_, at)| format!("{at:.0}")),
            rotations: status.rotations,
        }))
    }

    fn run(self) -> Result<(), Failure> {
        let signed = self.signed()?;
        let received = ReceivedFile::of_database(&self.db);
        let received = received.read().map_err(Failure::failed)?;
        let grants = received.as_ref().map(|known| known.grants());
        let shown = received.as_ref().map(|known| -> Result<_, Failure> {
            let tokens = shown_tokens(grants.iter().flatten());
            Ok(ReceivedShown {
                number: known.list.number,
                cloud: format!("{:016x}", known.list.cloud),
                key: hex(known.list.signing_key()),
                tokens: serde_json::to_value(tokens.0).map_err(Failure::failed)?,
            })
        });
        let shown: Option<ReceivedShown> = shown.transpose()?;
        if self.format == ListFormat::Json {
            return print_json(&serde_json::json!({ "signed": signed, "received": shown }));
        }
        let mut text = String::new();
        // Writing to a string cannot fail.
        if let Some(signed) = &signed {
            let _ = writeln!(text, "signs list {} with key {}", signed.number, signed.key);
            if let (Some(next), Some(at)) = (&signed.next_key, &signed.next_key_at) {
                let _ = writeln!(text, "next key {next}, from {at} on");
            }
        }
        if let Some(shown) = &shown {
            let _ = writeln!(
                text,
                "received list {} of cloud {}, signed with key {}",
                shown.number, shown.cloud, shown.key
            );
            text.push_str(&shown_tokens(grants.iter().flatten()).1);
        }
        if text.is_empty() {
            text.push_str("no list of rights is signed or was received here\n");
        }
        print(&text)
    }
}

/// Change the key that signs the list of a cloud: nodes follow by the signature of the key before
#[derive(Debug, Args)]
#[command(after_help = "\
Until the end of the overlap the key before signs, and nodes accept both. Nodes that are away for longer follow the chain
of signed keys when they are back. If the key before may be known to others, use --now: and since who knows it can sign a
chain of his own for nodes that are away, have these join again.")]
struct Rotate {
    /// Directory of the database
    #[arg(long, value_name = "DIR", env = "HEADWATER_DB", hide_env_values = true)]
    db: PathBuf,

    /// Time for which the key before still signs
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = parse_duration)]
    overlap: i64,

    /// Sign with the new key at once
    #[arg(long, conflicts_with = "overlap")]
    now: bool,
}

impl Rotate {
    fn run(self) -> Result<(), Failure> {
        let overlap = jiff::SignedDuration::from_nanos(if self.now { 0 } else { self.overlap });
        let file = TokenFile::of_database(&self.db);
        let key = RightsKeys::rotate(&file, overlap).map_err(Failure::failed)?;
        print(&format!("{}\n", hex(&key)))
    }
}
