//! `headwater edges add`: invitations for one edge, or for each edge of a file.
//!
//! A file is CSV with a heading, or JSON lines: `list` reads it. All of its edges are added in one
//! write, or none: every bad line is reported with its number. The file of invitations is made
//! before anything is added, so that no invitation is lost because it cannot be written.

use super::list::{ListedEdge, bad_lines, read};
use super::naming;
use crate::arguments::parse_duration;
use crate::failure::Failure;
use crate::output::print;
use crate::server::{Answered, Server};
use clap::Args;
use headwater_cluster::StreamShare;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(super) struct Add {
    /// Name of the edge here: letters, digits, `-`, `_` and `.`
    #[arg(value_name = "NAME", required_unless_present = "from")]
    name: Option<String>,
    /// Add each edge of a file: CSV with the columns name and perhaps want, keep, ahead and tags,
    /// or JSON lines with the same members; - is stdin. All are added, or none
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "again"])]
    from: Option<PathBuf>,
    /// New file for the invitations of --from, one line for each edge: its name, a tab, and the
    /// invitation; stdout unless given
    #[arg(long, value_name = "FILE", requires = "from")]
    invitations: Option<PathBuf>,
    /// Address under which the edge reaches this cloud; that of --url unless given
    #[arg(long, value_name = "URL")]
    at: Option<String>,
    /// Subscription to it: full (all rows), or summaries:LEVEL
    #[arg(long, value_name = "WANT", value_parser = super::parse_want)]
    want: Option<StreamShare>,
    /// Validity of the invitation
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = parse_duration)]
    valid: i64,
    /// Certificate that the edge verifies this cloud by, unless its system trusts it already
    #[arg(long, value_name = "FILE")]
    edge_ca: Option<PathBuf>,
    /// Invite the machine behind a name again, for example after it was replaced
    #[arg(long)]
    again: bool,
    /// Tag that is added to the names of all of its streams here; its value is the name of the
    /// edge unless given
    #[arg(long, value_name = "TAG[=VALUE]", value_parser = naming::parse_added)]
    tag: Vec<naming::Added>,
}

/// Settings of all invited edges.
struct OfAll {
    want: Option<StreamShare>,
    ca: Option<String>,
    url: String,
    valid_seconds: u64,
}

impl Add {
    pub(super) fn run(self, server: &Server, url: &str) -> Result<(), Failure> {
        let ca = self.edge_ca.as_ref().map(|path| {
            let read = std::fs::read_to_string(path);
            read.map_err(|e| Failure::usage(format!("--edge-ca {}: {e}", path.display())))
        });
        let of_all = OfAll {
            want: self.want,
            ca: ca.transpose()?,
            url: self.at.clone().unwrap_or_else(|| url.to_owned()),
            valid_seconds: self.valid.unsigned_abs() / 1_000_000_000,
        };
        if let Some(from) = &self.from {
            return self.add_listed(server, of_all, from);
        }
        let name = self.name.as_deref().unwrap_or_default();
        let answer = server.sync(&json!({
            "op": "add_edge", "edge": name, "again": self.again,
            "tags": naming::tags(&self.tag, name), "want": of_all.want, "ca": of_all.ca,
            "url": of_all.url, "valid_seconds": of_all.valid_seconds,
        }))?;
        let invitation = answer.text("invitation").unwrap_or_default();
        print(&format!("{invitation}\n"))?;
        eprintln!(
            "This is the only time it is shown. At the edge: headwater join INVITATION --db DIR"
        );
        Ok(())
    }

    fn add_listed(&self, server: &Server, of_all: OfAll, from: &Path) -> Result<(), Failure> {
        let listed = read(from)?;
        let edges = listed.iter().map(|edge| edge.asked(&self.tag));
        let asked = json!({
            "op": "add_edges", "edges": edges.collect::<Value>(), "want": of_all.want,
            "ca": of_all.ca, "url": of_all.url, "valid_seconds": of_all.valid_seconds,
        });
        let mut out = self
            .invitations
            .as_deref()
            .map(Invitations::create)
            .transpose()?;
        let answer = server.try_sync(&asked)?;
        if answer.status != 200 {
            if let Some(out) = &out {
                out.remove();
            }
            return Err(refused(from, &listed, &answer));
        }
        let text = lines(&answer)?;
        match &mut out {
            Some(out) => out.write(&text)?,
            None => print(&text)?,
        }
        eprintln!(
            "{} edges added. This is the only time their invitations are shown. At each: headwater join INVITATION --db DIR",
            listed.len()
        );
        Ok(())
    }
}

/// The file of invitations, which did not exist before and which only its owner may read.
struct Invitations {
    path: PathBuf,
    file: File,
}

impl Invitations {
    fn create(path: &Path) -> Result<Invitations, Failure> {
        let mut options = OpenOptions::new();
        let made = options.write(true).create_new(true).mode(0o600).open(path);
        let file = made.map_err(|e| {
            Failure::failed(format!(
                "--invitations {}: {e}; no edge was added",
                path.display()
            ))
        })?;
        Ok(Invitations {
            path: path.to_owned(),
            file,
        })
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        let written = self.file.write_all(text.as_bytes());
        written.and_then(|()| self.file.sync_all()).map_err(|e| {
            Failure::failed(format!(
                "--invitations {}: {e}; the edges are added: invite each with `headwater edges add NAME --again`",
                self.path.display()
            ))
        })
    }

    /// Removes the file, into which nothing was written.
    fn remove(&self) {
        // An empty file that stays is in nobody's way.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A line for each invitation.
fn lines(answer: &Answered) -> Result<String, Failure> {
    let unexpected = || Failure::failed("the server's answer has no invitations");
    let all = answer.body.get("invitations").and_then(Value::as_array);
    let mut text = String::new();
    for one in all.ok_or_else(unexpected)? {
        let of = |key: &str| one.get(key).and_then(Value::as_str);
        let (edge, invitation) = of("edge").zip(of("invitation")).ok_or_else(unexpected)?;
        text.push_str(&format!("{edge}\t{invitation}\n"));
    }
    Ok(text)
}

/// The failure that a refusal of the server reports, by lines where it names edges.
fn refused(from: &Path, listed: &[ListedEdge], answer: &Answered) -> Failure {
    let faults = answer.body.get("faults").and_then(Value::as_array);
    let fault = |fault: &Value| {
        let at = usize::try_from(fault.get("at")?.as_u64()?).ok()?;
        let message = fault.get("message")?.as_str()?.to_owned();
        Some((listed.get(at)?.line, message))
    };
    let faults = faults.into_iter().flatten().filter_map(fault);
    let faults: Vec<(usize, String)> = faults.collect();
    match faults.is_empty() {
        true => answer.failure(),
        false => bad_lines(from, &faults),
    }
}
