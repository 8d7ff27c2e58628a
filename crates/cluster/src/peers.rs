//! The peer of a cloud node: another cloud that gets a copy of everything that this one has, so
//! that either answers queries about everything.
//!
//! Every copy of an edge and closed part of this node, and its own database once that has streams,
//! is relayed to the peer ([`Relays`]). The node sends the peer its [roster](Roster): the peer
//! adds, renames, closes, reopens and deletes what follows these copies, and answers a key for each
//! that it has none for. With two nodes, each is the other's peer; with more, they form a ring.
//!
//! Invariants: nothing is relayed to a node that it has passed through, or that it belongs to. The
//! name at the peer contains this node's name, so that no two nodes use one name. The roster is the
//! state of this node's list, so that a change that the peer has not been told, because either
//! process ended, is in the next one. Concurrency: one task. Failure: a peer that does not answer
//! is tried again, with longer pauses; the reason is in the node's status.

use crate::ca_file::CaFile;
use crate::copies::EdgeCopies;
use crate::edges::{Roster, RosterAnswer, RosterCopy, hexed};
use crate::error::{ClusterError, ClusterErrorKind};
use crate::node_client::NodeClient;
use crate::relays::{OWN_DATABASE, Relays};
use crate::settings::PeerSettings;
use crate::status::PeerStatus;
use crate::uplink_file::UplinkFile;
use crate::waiting::{blocking, stopped};
use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, StatusCode, header};
use headwater_engine::Database;
use http_body_util::{BodyExt, Limited};
use parking_lot::Mutex;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// Interval of looking for changes.
const LOOK: Duration = Duration::from_secs(2);
/// Interval of sending the roster without a change: the peer may have been restored from a backup.
const AGAIN: Duration = Duration::from_secs(600);
/// Longest pause after failures.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Longest time for an answer of the peer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Longest answer of the peer.
const ANSWER_BYTES_MAX: usize = 16 << 20;
const PATH: &str = "/api/v1/sync";
/// The peer of a cloud node.
#[derive(Debug)]
pub struct Peers {
    fleet: Arc<EdgeCopies>,
    relays: Arc<Relays>,
    own: Database,
    settings: PeerSettings,
    peer: NodeClient,
    /// Certificates of the peer.
    ca: Option<Arc<CaFile>>,
    /// Identity of the peer's own database, once it has answered.
    identity: Mutex<Option<u64>>,
    /// The roster that the peer has applied last, and when it was sent.
    sent: Mutex<Option<(Roster, Instant)>>,
    status: Mutex<PeerStatus>,
}

fn failed(text: impl Into<String>) -> ClusterError {
    ClusterError::new(ClusterErrorKind::Unreachable, text)
}

impl Peers {
    /// The peer of the settings; `None` when they name none.
    ///
    /// # Errors
    /// `io` when the file with certificates cannot be read.
    pub fn of(
        settings: &PeerSettings,
        fleet: &Arc<EdgeCopies>,
        relays: &Arc<Relays>,
        own: Database,
    ) -> Result<Option<Peers>, ClusterError> {
        let Some(url) = settings.url.clone() else {
            return Ok(None);
        };
        let read = |path: &PathBuf| CaFile::read(path).map_err(|e| ClusterError::io(path, &e));
        let ca = settings.ca.as_ref().map(read).transpose()?;
        Ok(Some(Peers {
            fleet: Arc::clone(fleet),
            relays: Arc::clone(relays),
            own,
            peer: NodeClient::new(&url, ca.clone()),
            ca,
            identity: Mutex::default(),
            sent: Mutex::default(),
            status: Mutex::new(PeerStatus {
                url,
                ..PeerStatus::default()
            }),
            settings: settings.clone(),
        }))
    }

    /// Status of the peer.
    #[must_use]
    pub fn status(&self) -> PeerStatus {
        self.status.lock().clone()
    }

    /// Name of this node at the peer.
    fn node_name(&self) -> String {
        match self.settings.name.as_str() {
            "" => format!("{:08x}", self.fleet.node() >> 32),
            name => name.to_owned(),
        }
    }

    /// This node's own database, as the peer is told it; `None` without a stream.
    fn own_copy(&self) -> Result<Option<RosterCopy>, ClusterError> {
        let stats = self.own.stats().map_err(crate::error::of_device)?;
        Ok((stats.streams > 0).then(|| RosterCopy {
            copy: OWN_DATABASE.to_owned(),
            name: self.node_name(),
            identity: hexed(self.fleet.node()),
            path: Vec::new(),
            created_ns: None,
            closed_before: 0,
            tags: Default::default(),
            closed: None,
            needs_key: false,
        }))
    }

    /// Roster for the peer, and the number of copies that are relayed elsewhere.
    fn roster(&self, peer: u64) -> Result<(Roster, usize), ClusterError> {
        let mut roster = self.fleet.roster_for(peer)?;
        roster.want = self.settings.want;
        let copies = std::mem::take(&mut roster.copies);
        let mut elsewhere = 0;
        let node = self.node_name();
        let own = self.own_copy()?;
        let copies = copies.into_iter();
        let copies = copies.map(|copy| copy.named_at_peer(&node));
        for mut copy in copies.chain(own) {
            let file = self.relays.file_of(&copy.copy)?;
            if file.as_ref().is_some_and(|file| !file.is_peer) {
                elsewhere += 1;
                continue;
            }
            let path = match copy.copy.as_str() {
                OWN_DATABASE => vec![self.fleet.node()],
                folder => self.relays.origin(folder).path(),
            };
            // It passed through the peer, or is the peer's.
            if copy.database() == Some(peer) || path.contains(&peer) {
                continue;
            }
            copy.path = path.into_iter().map(hexed).collect();
            copy.needs_key = self.relays.is_denied(&copy.copy)
                || file.is_none_or(|file| file.url != self.peer.url());
            roster.copies.push(copy);
        }
        Ok((roster, elsewhere))
    }

    /// Sends a request to the peer's list of edges.
    async fn call(&self, method: Method, body: Option<Value>) -> Result<Value, ClusterError> {
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let request = Request::builder().method(method).uri(PATH);
        let request = request.header(header::CONTENT_TYPE, "application/json");
        let mut request = request.body(body).map_err(|e| failed(e.to_string()))?;
        if let Some(path) = &self.settings.token_file {
            let token = std::fs::read_to_string(path).map_err(|e| ClusterError::io(path, &e))?;
            let bearer = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
            let bearer = bearer.map_err(|_| {
                ClusterError::invalid(format!("{}: not a valid token", path.display()))
            })?;
            request.headers_mut().insert(header::AUTHORIZATION, bearer);
        }
        let answered = timeout(ANSWER_MAX, async {
            let response = self.peer.send(request).await;
            let response = response.map_err(|error| failed(error.to_string()))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
            let body = body.collect().await.map_err(|e| failed(e.to_string()))?;
            Ok::<_, ClusterError>((status, body.to_bytes()))
        });
        let url = self.peer.url();
        let (status, body) = answered
            .await
            .map_err(|_| failed(format!("{url}: no answer within {ANSWER_MAX:?}")))??;
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        if status != StatusCode::OK {
            let message = answer.get("message").and_then(Value::as_str);
            let message = message.unwrap_or("without a message");
            return Err(failed(format!("{url} answered {status}: {message}")));
        }
        Ok(answer)
    }

    /// Identity of the peer's own database.
    async fn peer_identity(&self) -> Result<u64, ClusterError> {
        if let Some(identity) = *self.identity.lock() {
            return Ok(identity);
        }
        let status = self.call(Method::GET, None).await?;
        let identity = status.get("identity").and_then(Value::as_str);
        let identity = identity.and_then(|text| u64::from_str_radix(text, 16).ok());
        let identity = identity.ok_or_else(|| {
            failed(format!(
                "{}: it is not a cloud node of this version",
                self.peer.url()
            ))
        })?;
        if identity == self.fleet.node() {
            return Err(ClusterError::invalid(
                "cloud.peer is this node itself: name another cloud",
            ));
        }
        *self.identity.lock() = Some(identity);
        Ok(identity)
    }

    /// Sends the roster, and returns the peer's answer.
    async fn send(&self, roster: &Roster) -> Result<RosterAnswer, ClusterError> {
        let mut body = serde_json::to_value(roster).map_err(|e| failed(e.to_string()))?;
        if let Some(body) = body.as_object_mut() {
            body.insert("op".to_owned(), "mirror".into());
        }
        let answer = self.call(Method::POST, Some(body)).await?;
        let url = self.peer.url();
        serde_json::from_value(answer)
            .map_err(|error| failed(format!("{url}: its answer to the roster: {error}")))
    }

    /// Relays the copies for which the peer has answered a key, under the names that they have
    /// there. Returns the number of relayed copies.
    fn relay(&self, roster: &Roster, answer: &RosterAnswer) -> Result<usize, ClusterError> {
        let mut relayed = 0;
        for copy in &roster.copies {
            if answer.errors.contains_key(&copy.copy) {
                continue;
            }
            let file = self.relays.file_of(&copy.copy)?;
            let key = answer.keys.get(&copy.copy).cloned();
            let key = key.or_else(|| file.as_ref().map(|file| file.key.clone()));
            if let Some(key) = key {
                let mut wanted = file.clone().unwrap_or_else(|| {
                    UplinkFile::new(self.peer.url(), &copy.name, key.clone(), None)
                });
                wanted.url = self.peer.url().to_owned();
                wanted.edge.clone_from(&copy.name);
                wanted.key = key;
                wanted.ca = self.ca.as_ref().map(|file| file.text().to_string());
                (wanted.gets, wanted.is_peer) = (true, true);
                if file.as_ref() != Some(&wanted) {
                    self.relays.set_file(&copy.copy, &wanted)?;
                }
                relayed += 1;
            }
        }
        Ok(relayed)
    }

    /// Tells the peer what has changed, and relays what is not relayed yet. Returns the number of
    /// relayed databases.
    async fn look(self: &Arc<Self>) -> Result<usize, ClusterError> {
        let identity = self.peer_identity().await?;
        let peers = Arc::clone(self);
        let (roster, elsewhere) = blocking(move || peers.roster(identity)).await??;
        let is_known = self
            .sent
            .lock()
            .as_ref()
            .is_some_and(|(sent, at)| *sent == roster && at.elapsed() < AGAIN);
        if is_known {
            return Ok(elsewhere.saturating_add(roster.copies.len()));
        }
        *self.sent.lock() = None;
        let answer = self.send(&roster).await?;
        let (peers, told) = (Arc::clone(self), answer.clone());
        let (mut roster, relayed) = blocking(move || {
            let relayed = peers.relay(&roster, &told)?;
            Ok::<_, ClusterError>((roster, relayed))
        })
        .await??;
        if let Some((copy, reason)) = answer.errors.first_key_value() {
            return Err(failed(format!("{copy}: {reason}")));
        }
        for copy in &mut roster.copies {
            // It has one now.
            copy.needs_key = false;
        }
        *self.sent.lock() = Some((roster, Instant::now()));
        Ok(elsewhere.saturating_add(relayed))
    }

    /// Looks for changes until the server stops.
    pub async fn run(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        let mut pause = LOOK;
        while !*stopping.borrow() {
            let looked = self.look().await;
            {
                let mut status = self.status.lock();
                match looked {
                    Ok(relayed) => {
                        (status.relayed, status.error) = (relayed, None);
                        pause = LOOK;
                    }
                    Err(error) => {
                        if status.error.is_none() {
                            tracing::warn!(peer = status.url, %error, "not everything is relayed");
                        }
                        status.error = Some(error.to_string());
                        pause = (pause * 2).min(PAUSE_MAX);
                    }
                }
            }
            tokio::select! {
                () = sleep(pause) => {}
                () = stopped(&mut stopping) => {}
            }
        }
    }
}
