//! `headwater join`: makes a database an edge of a cloud.

use crate::failure::Failure;
use crate::output::print;
use clap::Args;
use headwater_cluster::UplinkFile;
use std::path::PathBuf;

/// Join a cloud, which replicates this database from then on
#[derive(Debug, Args)]
#[command(after_help = "\
INVITATION is what `headwater edges add NAME` printed at the cloud; it can be used once. A server that runs on the database
with --role edge connects within seconds. The settings sync.* of the edge decide what is sent, and when: see
docs/operate/settings.md. A database that was restored, repaired or moved to another machine, and that the cloud refuses for
that reason, joins with --new-incarnation: the cloud closes its old copy, which stays in answers, and starts a new one.

Examples:
  headwater join hwjoin1.eyJ1cmwi… --db plant.db
  headwater join --new-incarnation --db plant.db
  headwater join --leave --db plant.db")]
pub(crate) struct Join {
    /// Invitation that `headwater edges add` printed; can be used once
    #[arg(value_name = "INVITATION", required_unless_present_any = ["new_incarnation", "leave"])]
    invitation: Option<String>,

    /// Directory of the database
    #[arg(long, value_name = "DIR", env = "HEADWATER_DB", hide_env_values = true)]
    db: PathBuf,

    /// Address of the cloud, where this machine reaches it under another than the invitation names
    #[arg(long, value_name = "URL", requires = "invitation")]
    url: Option<String>,

    /// Certificate of the cloud, or of its issuer, in PEM
    #[arg(long, value_name = "FILE", requires = "invitation")]
    ca: Option<PathBuf>,

    /// Make the cloud set its copy of this database aside and start a new one
    #[arg(long)]
    new_incarnation: bool,

    /// Leave the cloud; its copy stays there
    #[arg(long, conflicts_with_all = ["invitation", "new_incarnation"])]
    leave: bool,
}

impl Join {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if self.leave {
            if UplinkFile::read(&self.db)
                .map_err(Failure::failed)?
                .is_none()
            {
                return Err(Failure::failed("this database has joined no cloud"));
            }
            UplinkFile::forget(&self.db).map_err(Failure::failed)?;
            return print("left the cloud, which retains its copy\n");
        }
        let Some(invitation) = &self.invitation else {
            let file = UplinkFile::read(&self.db).map_err(Failure::failed)?;
            let mut file = file.ok_or_else(|| {
                Failure::failed("this database has joined no cloud: give an invitation of one")
            })?;
            file.begins_anew = true;
            file.write(&self.db).map_err(Failure::failed)?;
            return print(&format!(
                "{}: the cloud closes its copy and starts a new one at the next connection\n",
                file.edge
            ));
        };
        let ca = self.ca.as_ref().map(|path| {
            let read = std::fs::read_to_string(path);
            read.map_err(|error| Failure::usage(format!("--ca {}: {error}", path.display())))
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Failure::failed)?;
        let joining = headwater_cluster::join(
            &self.db,
            invitation,
            self.url.as_deref(),
            ca.transpose()?,
            self.new_incarnation,
        );
        let file = runtime.block_on(joining).map_err(Failure::failed)?;
        print(&format!("joined {} as {}\n", file.url, file.edge))?;
        eprintln!("Serve it with --role edge, and it connects.");
        Ok(())
    }
}
