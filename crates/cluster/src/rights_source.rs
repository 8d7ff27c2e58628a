//! Fetches the list of rights of another cloud, for a dispatcher or a cloud.
//!
//! Invariant: a request waits at the other node until its list changes, so a revocation is known
//! within moments. Concurrency: one worker. Failure: a node that does not answer is asked again
//! after growing pauses; the list before stays in force.

use crate::ca_file::CaFile;
use crate::error::ClusterError;
use crate::node_client::NodeClient;
use crate::rights::{RIGHTS_PATH, RightsReceiver, Stored};
use crate::waiting::blocking;
use axum::body::Body;
use axum::http::{HeaderValue, Request, StatusCode, header};
use headwater_protocol::rights::RIGHTS_BYTES_MAX;
use headwater_shell::access::guard::Guard;
use headwater_shell::access::rights::received::digest;
use http_body_util::{BodyExt, Limited};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Seconds that a request waits for a change.
const WAIT_SECONDS: u64 = 20;
/// Longest time for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(60);
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(20);

/// Node whose list of rights is fetched.
#[derive(Clone)]
pub struct RightsSource {
    /// Address of the node.
    pub url: String,
    /// Certificates that sign its certificate; `None` = those that the system trusts.
    pub ca: Option<Arc<CaFile>>,
    /// Token that may read everything there.
    pub token: Option<String>,
}

impl std::fmt::Debug for RightsSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RightsSource")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// Fetches the list of another node, and its changes, until the server stops.
pub async fn follow_rights(
    source: &RightsSource,
    receiver: &RightsReceiver,
    guard: &Arc<Guard>,
    mut stopping: watch::Receiver<bool>,
) {
    let client = NodeClient::new(&source.url, source.ca.clone());
    let following = async {
        let mut pause = PAUSE_MIN;
        loop {
            match fetch(&client, source, receiver).await {
                Ok(list) => {
                    pause = PAUSE_MIN;
                    receiver.reached();
                    if list.is_none() {
                        guard.confirm_received();
                    }
                    if let Some(list) = list {
                        let (receiver, guard) = (receiver.clone(), Arc::clone(guard));
                        let taken = blocking(move || match receiver.take(&list, None) {
                            Stored::New => {
                                guard.refresh();
                                guard.confirm_received();
                            }
                            Stored::Known => guard.confirm_received(),
                            Stored::Refused | Stored::Failed => {}
                        });
                        if let Err(error) = taken.await {
                            receiver_failed(&error);
                        }
                        // A refused list is fetched again at intervals.
                        tokio::time::sleep(PAUSE_MIN).await;
                    }
                }
                Err(why) => {
                    receiver.refused(&why);
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    };
    tokio::select! {
        () = following => {}
        // An error means that the server has stopped.
        _ = stopping.wait_for(|stop| *stop) => {}
    }
}

fn receiver_failed(error: &ClusterError) {
    tracing::error!(%error, "a list of rights cannot be stored");
}

/// The list of the other node, if it is not the stored one.
async fn fetch(
    client: &NodeClient,
    source: &RightsSource,
    receiver: &RightsReceiver,
) -> Result<Option<Vec<u8>>, String> {
    let file = receiver.file().clone();
    let known = blocking(move || file.read());
    let known = known.await.map_err(|e| e.to_string())?;
    let known = known.map_err(|e| e.to_string())?;
    let known = known.map(|known| digest(&known.bytes)).unwrap_or_default();
    let path = format!("{RIGHTS_PATH}?known={known}&wait={WAIT_SECONDS}");
    let mut request = Request::get(path);
    if let Some(token) = &source.token {
        let bearer = HeaderValue::from_str(&format!("Bearer {token}"));
        let bearer = bearer.map_err(|_| "the text is not a valid token".to_owned())?;
        request = request.header(header::AUTHORIZATION, bearer);
    }
    let request = request.body(Body::empty()).map_err(|e| e.to_string())?;
    let asked = async {
        let response = client.send(request).await.map_err(|e| e.to_string())?;
        let status = response.status();
        let body = Limited::new(response.into_body(), RIGHTS_BYTES_MAX);
        let body = body.collect().await.map_err(|e| e.to_string())?;
        Ok::<_, String>((status, body.to_bytes()))
    };
    let (status, body) = tokio::time::timeout(ANSWER_MAX, asked)
        .await
        .map_err(|_| format!("{}: no answer in time", client.url()))??;
    match status {
        StatusCode::OK => Ok(Some(body.to_vec())),
        StatusCode::NO_CONTENT => Ok(None),
        _ => {
            let said: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
            let said = said.get("message").and_then(|m| m.as_str());
            let said = said.unwrap_or("no list of rights");
            Err(format!("{}: answered {status}: {said}", client.url()))
        }
    }
}
