//! `headwater notices`: configures the access of a broker to notices.

use crate::failure::Failure;
use crate::output::print;
use clap::{Args, Subcommand, ValueEnum};
use headwater_server::settings::{BrokerLogin, NoticeBus, NoticeSettings, xmpp_server};
use headwater_server::tokens::{TokenFile, Tokens};
use headwater_server::{apply_broker_lists, broker_list_text, broker_lists, broker_rules};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Rules for the broker that carries notices between nodes
#[derive(Debug, Args)]
pub(crate) struct Notices {
    #[command(subcommand)]
    command: NoticesCommand,
}

#[derive(Debug, Subcommand)]
enum NoticesCommand {
    Rules(Rules),
    Apply(Apply),
}

impl Notices {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.command {
            NoticesCommand::Rules(rules) => rules.run(),
            NoticesCommand::Apply(apply) => apply.run(),
        }
    }
}

/// Print who may publish and receive notices, in the format of a broker
#[derive(Debug, Args)]
#[command(after_help = "\
The list of tokens gives the rights: a client logs in to the broker by the name of a token. A notice of the node NAME counts
as a row of headwater_notices,node=NAME: tokens that may read it receive the notice, tokens that may write it publish it. See
docs/cluster/notices.md.

Examples:
  headwater token create --db gate --name north --write 'headwater_notices,node=north'
  headwater notices rules --db gate > /etc/mosquitto/headwater.acl
  headwater notices rules --db gate --bus xmpp --domain plant.example")]
struct Rules {
    /// Directory of the database whose list of tokens is read
    #[arg(long, value_name = "DIR", env = "HEADWATER_DB", hide_env_values = true)]
    db: PathBuf,

    /// Prefix of the topics of notices: the setting notices.topic
    #[arg(long, value_name = "TOPIC", default_value = "headwater/notices")]
    topic: String,

    /// The kind of broker: mosquitto (its acl_file), or publish-subscribe of XMPP
    #[arg(long, value_enum, default_value_t = For::Mqtt)]
    bus: For,

    /// For XMPP: the domain whose accounts the tokens' names are
    #[arg(long, value_name = "DOMAIN", required_if_eq("bus", "xmpp"))]
    domain: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum For {
    Mqtt,
    Xmpp,
}

/// Apply who may publish and receive notices to an XMPP server
#[derive(Debug, Args)]
#[command(after_help = "\
Creates a publish-subscribe node (XEP-0060) for each node that may publish, admits only accounts in the list of tokens, removes
accounts that are no longer in it, and reads back what the server stored. The account must have the right to create such nodes.
Run it again when the list has changed. See docs/cluster/notices.md.

Example:
  headwater notices apply --db gate --server xmpp://xmpp.plant.example --user admin@plant.example --password-file admin.password")]
struct Apply {
    /// Directory of the database whose list of tokens is read
    #[arg(long, value_name = "DIR", env = "HEADWATER_DB", hide_env_values = true)]
    db: PathBuf,

    /// The server: xmpp://HOST[:PORT], or xmpps://HOST[:PORT] for TLS from the first byte on
    #[arg(long, value_name = "URL")]
    server: String,

    /// The account that owns the nodes: NAME@DOMAIN
    #[arg(long, value_name = "ACCOUNT")]
    user: String,

    /// File with its password
    #[arg(long, value_name = "FILE")]
    password_file: PathBuf,

    /// Certificates of authorities that may sign the server's; default: those that the system
    /// trusts
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,

    /// Domain of publish-subscribe; default: pubsub. before the domain of the account
    #[arg(long, value_name = "DOMAIN", default_value = "")]
    service: String,

    /// The domain whose accounts the tokens' names are; without it that of the account
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,

    /// Prefix of the topics of notices: the setting notices.topic
    #[arg(long, value_name = "TOPIC", default_value = "headwater/notices")]
    topic: String,
}

impl Apply {
    fn run(self) -> Result<(), Failure> {
        let tokens = tokens(&self.db)?;
        let server =
            xmpp_server(&self.server).map_err(|e| Failure::usage(format!("--server: {e}")))?;
        let of_account = self
            .user
            .split_once('@')
            .map(|(_, domain)| domain.to_owned());
        let domain = self.domain.or(of_account);
        let domain = domain.ok_or_else(|| Failure::usage("--user: expected NAME@DOMAIN"))?;
        let lists = broker_lists(&tokens, &self.topic, &domain).map_err(Failure::failed)?;
        let settings = NoticeSettings {
            bus: NoticeBus::Xmpp,
            topic: self.topic,
            xmpp: Some(server),
            service: self.service,
            login: BrokerLogin {
                user: self.user,
                password_file: Some(self.password_file),
                ca: self.ca,
                ..BrokerLogin::default()
            },
            ..NoticeSettings::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Failure::failed)?;
        let applied = runtime.block_on(apply_broker_lists(&settings, &lists));
        let applied = applied.map_err(Failure::failed)?;
        let mut out = String::new();
        for topic in &applied.created {
            // Text takes all that is written to it.
            let _ = writeln!(out, "made {topic}");
        }
        for (topic, account, before, now) in &applied.changed {
            let _ = writeln!(out, "{topic} {account}: {before} -> {now}");
        }
        let _ = writeln!(out, "{} topics are as the list says", applied.topics);
        print(&out)
    }
}

fn tokens(db: &Path) -> Result<Tokens, Failure> {
    let tokens = TokenFile::of_database(db).read();
    tokens.map_err(Failure::failed)?.ok_or_else(|| {
        Failure::failed(format!(
            "{}: there is no list of tokens to derive rules from; create one with `headwater token create`",
            db.display()
        ))
    })
}

impl Rules {
    fn run(self) -> Result<(), Failure> {
        let tokens = tokens(&self.db)?;
        let rules = match (self.bus, self.domain) {
            (For::Xmpp, Some(domain)) => {
                broker_lists(&tokens, &self.topic, &domain).map(|lists| broker_list_text(&lists))
            }
            // Without a domain there is no other bus: the command line was refused.
            (For::Mqtt | For::Xmpp, _) => broker_rules(&tokens, &self.topic),
        };
        print(&rules.map_err(Failure::failed)?)
    }
}
