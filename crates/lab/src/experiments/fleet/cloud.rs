//! A cloud in this process: the shipped fleet behind a socket, with a clock that an experiment
//! sets, over TLS or without.

use super::children::settings;
use crate::harness::Failure;
use headwater_cluster::{EdgeCopies, EdgeState, RequestHead, Uplink, database_of};
use headwater_engine::{Database, Options};
use headwater_io::{Env, ManualClock};
use headwater_types::Timestamp;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// 2026-12-01, in seconds since 1970.
const NOW: i64 = 1_796_083_200;
/// Longest wait for a state.
const WITHIN: Duration = Duration::from_secs(60);

/// The clock of a cloud and of its edge.
pub(super) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Timestamp::from_nanos(NOW * 1_000_000_000)))
}

/// The system with that clock.
pub(super) fn env(clock: &Arc<ManualClock>) -> Env {
    let clock = Arc::clone(clock);
    Env {
        clock,
        ..Env::system()
    }
}

/// The cloud; it ends with `stop`.
pub(super) struct Cloud {
    pub(super) fleet: Arc<EdgeCopies>,
    /// Address without TLS, for joining.
    pub(super) url: String,
    /// Address with TLS, and the certificate that signs its own.
    pub(super) tls_url: String,
    pub(super) ca: String,
    pub(super) stop: watch::Sender<bool>,
    _own: Database,
}

/// A certificate for `localhost` that is valid at the time of the clock.
fn acceptor() -> Result<(TlsAcceptor, String), Failure> {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
    params.not_before = date_time_ymd(2026, 10, 1);
    params.not_after = date_time_ymd(2027, 3, 1);
    let key = KeyPair::generate()?;
    let cert = params.self_signed(&key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], der)?;
    Ok((TlsAcceptor::from(Arc::new(config)), cert.pem()))
}

impl Cloud {
    /// Starts one in a folder.
    pub(super) async fn start(dir: &Path, clock: &Arc<ManualClock>) -> Result<Cloud, Failure> {
        std::fs::create_dir_all(dir)?;
        let options = Options::new(dir);
        let own = Database::open_in(env(clock), options.clone())?;
        let fleet = Arc::new(EdgeCopies::open(env(clock), dir, options)?);
        fleet.set_node(database_of(&own)?.0);
        let plain = TcpListener::bind("127.0.0.1:0").await?;
        let secret = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", plain.local_addr()?);
        let tls_url = format!("https://localhost:{}", secret.local_addr()?.port());
        let (stop, stopping) = watch::channel(false);
        let (tls, ca) = acceptor()?;
        let (served, stops) = (Arc::clone(&fleet), stopping.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = plain.accept().await {
                tokio::spawn(serve(Arc::clone(&served), stream, stops.clone()));
            }
        });
        let (served, stops) = (Arc::clone(&fleet), stopping);
        tokio::spawn(async move {
            while let Ok((stream, _)) = secret.accept().await {
                let (served, stops, tls) = (Arc::clone(&served), stops.clone(), tls.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = tls.accept(stream).await {
                        serve(served, stream, stops).await;
                    }
                });
            }
        });
        Ok(Cloud {
            fleet,
            url,
            tls_url,
            ca,
            stop,
            _own: own,
        })
    }

    /// Waits until an edge is in a state.
    pub(super) async fn until_edge_is(&self, name: &str, state: EdgeState) -> Result<(), Failure> {
        until(&format!("the edge `{name}` is {state:?}"), || {
            let edge = self.fleet.edge_status(name);
            Ok(edge.is_some_and(|edge| edge.state == state))
        })
        .await
    }

    /// Lets an edge join whose database is in a folder; it then connects over TLS.
    pub(super) async fn join(&self, name: &str, dir: &Path) -> Result<(), Failure> {
        std::fs::create_dir_all(dir)?;
        let hour = Duration::from_secs(3_600);
        let invited = self
            .fleet
            .invite(name, &self.url, None, None, hour, false)?;
        headwater_cluster::join(dir, &invited, None, None, false).await?;
        let path = dir.join("uplink.json");
        let mut file: serde_json::Value = serde_json::from_slice(&std::fs::read(&path)?)?;
        let fields = file.as_object_mut().ok_or("no file of an uplink")?;
        fields.insert("url".to_owned(), self.tls_url.clone().into());
        fields.insert("ca".to_owned(), self.ca.clone().into());
        std::fs::write(&path, file.to_string())?;
        Ok(())
    }
}

/// Serves a request for a connection.
async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    fleet: Arc<EdgeCopies>,
    mut stream: S,
    stopping: watch::Receiver<bool>,
) {
    if let Some(head) = RequestHead::read(&mut stream).await {
        fleet.serve_request(&head, stream, stopping).await;
    }
}

/// An uplink to the cloud that a folder has joined; it ends with `true`.
pub(super) fn connect(
    db: &Database,
    env: Env,
    dir: &Path,
    flush: Duration,
) -> Result<(Arc<Uplink>, watch::Sender<bool>), Failure> {
    let uplink = Arc::new(Uplink::new(db.clone(), env, dir, settings(flush))?);
    let (stop, stopping) = watch::channel(false);
    tokio::spawn(Arc::clone(&uplink).run(stopping));
    Ok((uplink, stop))
}

/// Runs a simulation, and gives its tasks a moment to end.
pub(super) fn simulated<T>(
    simulation: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let results = runtime.block_on(simulation)?;
    runtime.shutdown_timeout(Duration::from_secs(5));
    Ok(results)
}

/// Waits until something is so.
pub(super) async fn until(
    what: &str,
    mut is_so: impl FnMut() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let begun = Instant::now();
    while !is_so()? {
        if begun.elapsed() > WITHIN {
            return Err(format!("{what}: not within a minute").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
