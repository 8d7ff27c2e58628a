//! `headwater notices`: what a broker is told of who may tell and hear notices.

use crate::failure::Failure;
use crate::output::print;
use clap::{Args, Subcommand};
use headwater_server::broker_rules;
use headwater_server::tokens::TokenFile;
use std::path::PathBuf;

/// Rules for the broker that carries notices between nodes
#[derive(Debug, Args)]
pub(crate) struct Notices {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Rules(Rules),
}

impl Notices {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.what {
            What::Rules(rules) => rules.run(),
        }
    }
}

/// Print who may tell and hear notices, as mosquitto reads it (acl_file)
#[derive(Debug, Args)]
#[command(after_help = "\
The list of tokens says who may: whoever logs in to the broker does so by the name of a token. A notice of the node NAME counts
as a row of headwater_notices,node=NAME: who may read it hears the notice, who may write it tells it. See
docs/cluster/notices.md.

Examples:
  headwater token create --db gate --name north --write 'headwater_notices,node=north'
  headwater notices rules --db gate > /etc/mosquitto/headwater.acl")]
struct Rules {
    /// Directory of the database whose list of tokens is read
    #[arg(long, value_name = "DIR", env = "HEADWATER_DB", hide_env_values = true)]
    db: PathBuf,

    /// What the topics of notices begin with: the setting notices.topic
    #[arg(long, value_name = "TOPIC", default_value = "headwater/notices")]
    topic: String,
}

impl Rules {
    fn run(self) -> Result<(), Failure> {
        let tokens = TokenFile::of_database(&self.db).read();
        let tokens = tokens.map_err(Failure::failed)?.ok_or_else(|| {
            Failure::failed(format!(
                "{}: there is no list of tokens, so there is nothing to make rules of; make one with `headwater token create`",
                self.db.display()
            ))
        })?;
        let rules = broker_rules(&tokens, &self.topic).map_err(Failure::failed)?;
        print(&rules)
    }
}
