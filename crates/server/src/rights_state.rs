//! The list of rights of a server: signed at a cloud, passed on, and fetched from another node.
//!
//! Invariants: a cloud signs its own list, or passes on the one that it fetches; a list is signed
//! again only after a change of the tokens or the keys. Concurrency: one worker changes the list;
//! the status is read by requests. Failure: a list that cannot be signed is reported in the status
//! and the log, and nodes keep the one before.

use crate::access::guard::Guard;
use crate::access::rights::ListUse;
use crate::access::rights::keys::{KeyStatus, RightsKeys};
use crate::access::rights::received::ReceivedFile;
use crate::access::token::hex;
use crate::access::tokens::Tokens;
use crate::settings::{NodeRole, Settings};
use crate::start_error::StartError;
use headwater::Database;
use headwater_cluster::{
    CaFile, EdgeCopies, RightsReceiver, RightsSource, RightsStatus, SignedRights, database_of,
    follow_rights,
};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::watch;

/// Input of the list that was signed last.
#[derive(Debug, Default)]
struct Signed {
    tokens: Option<Arc<Tokens>>,
    keys: Option<KeyStatus>,
    /// Number and digest of a list that is passed on.
    passed: Option<String>,
    error: Option<String>,
}

/// A cloud whose list is sent.
#[derive(Debug)]
pub(crate) struct Cloud<'a> {
    pub(crate) fleet: &'a EdgeCopies,
    pub(crate) guard: &'a Guard,
    pub(crate) db: &'a Database,
    /// Directory of the database.
    pub(crate) dir: &'a Path,
}

/// State of the list of rights of a server.
#[derive(Debug)]
pub(crate) struct RightsState {
    /// Receiver of the list of another node.
    pub(crate) receiver: Option<RightsReceiver>,
    source: Option<RightsSource>,
    signed: Mutex<Signed>,
}

fn read(path: Option<&Path>) -> Result<Option<String>, StartError> {
    let text = path.map(|path| {
        std::fs::read_to_string(path).map_err(|e| {
            let why = format!("{}: {e}", path.display());
            StartError::from(headwater_cluster::StartError::Dispatch(why))
        })
    });
    text.transpose()
}

fn ca_file(path: &Path) -> Result<Arc<CaFile>, StartError> {
    CaFile::read(path).map_err(|e| {
        let why = format!("{}: {e}", path.display());
        StartError::from(headwater_cluster::StartError::Dispatch(why))
    })
}

/// The node whose list is fetched.
///
/// # Errors
/// When its token or its certificates cannot be read.
pub(crate) fn source(settings: &Settings) -> Result<Option<RightsSource>, StartError> {
    let Some(url) = &settings.rights.from else {
        return Ok(None);
    };
    let (mut token, mut ca) = (&settings.rights.token_file, &settings.rights.ca);
    if settings.sync.role == NodeRole::Dispatcher {
        token = token
            .as_ref()
            .map_or(&settings.dispatch.token_file, |_| token);
        ca = ca.as_ref().map_or(&settings.dispatch.ca, |_| ca);
    }
    let token = read(token.as_deref())?;
    Ok(Some(RightsSource {
        url: url.clone(),
        ca: ca.as_deref().map(ca_file).transpose()?,
        token: token.map(|token| token.trim().to_owned()),
    }))
}

/// Receiver of the list of another node, where this node takes one.
pub(crate) fn receiver(settings: &Settings) -> Option<RightsReceiver> {
    let takes = settings.rights_policy().list != ListUse::Ignore;
    takes.then(|| RightsReceiver::new(ReceivedFile::of_database(settings.db())))
}

impl RightsState {
    pub(crate) fn open(settings: &Settings) -> Result<RightsState, StartError> {
        Ok(RightsState {
            receiver: receiver(settings),
            source: source(settings)?,
            signed: Mutex::default(),
        })
    }

    /// Status of the list of a node.
    pub(crate) fn status(&self, guard: &Guard) -> RightsStatus {
        let refused = self.receiver.as_ref().and_then(RightsReceiver::error);
        let signed = self.signed.lock();
        let keys = signed.keys.as_ref();
        let next = keys.and_then(|keys| keys.next);
        RightsStatus {
            signs: signed.tokens.as_ref().map(|tokens| tokens.list()),
            key: keys.map(|keys| hex(&keys.signs)),
            next_key: next.map(|(key, _)| hex(&key)),
            next_key_at: next.map(|(_, at)| at.to_string()),
            error: refused.or_else(|| signed.error.clone()),
            ..RightsStatus::of(guard)
        }
    }

    /// Signs the list of a cloud again after a change, or takes the one that is passed on.
    fn renew(&self, cloud: &Cloud<'_>) -> Result<(), String> {
        let guard = cloud.guard;
        if self.source.is_some() {
            let digest = guard.with_received(|list| format!("{} {}", list.number, list.signer));
            if self.signed.lock().passed == digest {
                return Ok(());
            }
            let known = ReceivedFile::of_database(cloud.dir).read();
            let known = known.map_err(|e| e.to_string())?;
            let list = known.map(|known| SignedRights::of(known.bytes));
            let list = list.transpose().map_err(|e| e.to_string())?;
            cloud.fleet.send_rights(list.map(Arc::new));
            self.signed.lock().passed = digest;
            return Ok(());
        }
        let Some(tokens) = guard.own() else {
            return Ok(());
        };
        let (identity, _) = database_of(cloud.db).map_err(|e| e.to_string())?;
        let keys = RightsKeys::open(cloud.dir, identity).map_err(|e| e.to_string())?;
        let now = guard.file().now();
        let status = keys.status(&tokens, now);
        {
            let signed = self.signed.lock();
            let is_same = |known: &Arc<Tokens>| Arc::ptr_eq(known, &tokens);
            if signed.tokens.as_ref().is_some_and(is_same) && signed.keys.as_ref() == Some(&status)
            {
                return Ok(());
            }
        }
        let bytes = keys.sign(&tokens, now).map_err(|e| e.to_string())?;
        let list = SignedRights::of(bytes).map_err(|e| e.to_string())?;
        cloud.fleet.send_rights(Some(Arc::new(list)));
        let mut signed = self.signed.lock();
        (signed.tokens, signed.keys) = (Some(tokens), Some(status));
        Ok(())
    }

    /// Looks for changes of the tokens and keys of a cloud.
    pub(crate) fn look(&self, cloud: &Cloud<'_>) {
        let error = self.renew(cloud).err();
        let mut signed = self.signed.lock();
        if signed.error != error
            && let Some(why) = &error
        {
            tracing::error!(%why, "the list of rights cannot be signed; nodes keep the one before");
        }
        signed.error = error;
    }

    /// Fetches the list of another node until the server stops, where one is configured.
    pub(crate) async fn follow(&self, guard: &Arc<Guard>, stopping: watch::Receiver<bool>) {
        if let (Some(source), Some(receiver)) = (&self.source, &self.receiver) {
            follow_rights(source, receiver, guard, stopping).await;
        }
    }
}
