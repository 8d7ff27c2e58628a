//! Nodes in one process, with real connections between them.

use headwater_cluster::settings::PeerSettings;
use headwater_cluster::{
    BudgetLimits, ClusterError, EdgeCopies, EdgeStatus, Peers, RelaySpec, Relays, ReplicationRules,
    RequestHead, Roster, Uplink, UplinkSettings, database_of, join,
};
use headwater_engine::{Database, ErrorKind, Options};
use headwater_io::Env;
use headwater_types::{Batch, ClosedRange, StreamName, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;

const WITHIN: Duration = Duration::from_secs(120);
const VALID: Duration = Duration::from_secs(3600);

pub(crate) fn settings() -> UplinkSettings {
    UplinkSettings {
        hold_bytes: u64::MAX,
        budget: BudgetLimits::default(),
        flush_every: None,
        live: None,
        free_after: None,
        rules: ReplicationRules::default(),
        rights: None,
        version: "test".into(),
    }
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = tokio::time::Instant::now() + WITHIN;
    while !is_so() {
        assert!(tokio::time::Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A cloud node.
pub(crate) struct Cloud {
    pub(crate) fleet: Arc<EdgeCopies>,
    pub(crate) relays: Arc<Relays>,
    pub(crate) dir: PathBuf,
    pub(crate) url: String,
    /// Number of connections so far.
    pub(crate) connections: Arc<AtomicUsize>,
    _guards: (Database, TempDir, watch::Sender<bool>),
}

impl Cloud {
    pub(crate) async fn start() -> Cloud {
        Cloud::start_with(Env::system()).await
    }

    /// One whose copies are in an environment.
    pub(crate) async fn start_with(env: Env) -> Cloud {
        let kept = tempfile::tempdir().unwrap();
        let dir = kept.path().to_owned();
        let db = Database::open_in(Env::system(), Options::new(&dir)).unwrap();
        let fleet = EdgeCopies::open(env, &dir, Options::new(&dir)).unwrap();
        let fleet = Arc::new(fleet);
        fleet.set_node(database_of(&db).unwrap().0);
        let relays = Arc::new(Relays::open(&fleet, db.clone(), &dir, settings()).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopping) = watch::channel(false);
        tokio::spawn(Arc::clone(&relays).run(stopping.clone()));
        let served = Arc::clone(&fleet);
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serve(Arc::clone(&served), stream, stopping.clone()));
            }
        });
        Cloud {
            fleet,
            relays,
            dir,
            url,
            connections,
            _guards: (db, kept, stop),
        }
    }

    /// The node's own database.
    pub(crate) fn own(&self) -> &Database {
        &self._guards.0
    }

    /// Everything that the node shows.
    pub(crate) fn snapshot(&self) -> headwater_engine::Snapshot {
        let own = self._guards.0.snapshot().unwrap();
        self.fleet.across(own).unwrap()
    }

    pub(crate) fn invite(&self, name: &str) -> String {
        let invited = self.fleet.invite(name, &self.url, None, None, VALID, false);
        invited.unwrap()
    }

    pub(crate) fn invite_again(&self, name: &str) -> String {
        let invited = self.fleet.invite(name, &self.url, None, None, VALID, true);
        invited.unwrap()
    }

    /// Rows of table `m` in answers; `u64::MAX` while they cannot be counted, since some are not
    /// here yet.
    pub(crate) fn rows(&self) -> u64 {
        let own = self._guards.0.snapshot().unwrap();
        let all = self.fleet.across(own).unwrap();
        if !all.table_names().contains(&"m".to_owned()) {
            return 0;
        }
        match all.row_count("m", ClosedRange::ALL, &mut || true) {
            Err(error) if error.kind() == ErrorKind::Elsewhere => u64::MAX,
            counted => counted.unwrap().unwrap(),
        }
    }

    /// Changes bytes in the middle of each segment of a part.
    pub(crate) fn damage(&self, part: &str) {
        let folder = self
            .dir
            .join("copies")
            .join(part.split('@').next().unwrap());
        for entry in files_under(&folder) {
            if entry.extension().is_some_and(|e| e != "redb") {
                let mut bytes = std::fs::read(&entry).unwrap();
                let middle = bytes.len() / 2;
                if let Some(byte) = bytes.get_mut(middle) {
                    *byte ^= 1;
                }
                std::fs::write(&entry, bytes).unwrap();
            }
        }
    }

    /// The list of edges and the copies in another directory.
    pub(crate) fn copied(&self) -> (TempDir, PathBuf) {
        let kept = tempfile::tempdir().unwrap();
        let to = kept.path().join("db");
        for from in files_under(&self.dir.join("copies")) {
            let file = to.join(from.strip_prefix(&self.dir).unwrap());
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::copy(&from, &file).unwrap();
        }
        std::fs::copy(self.dir.join("edges.json"), to.join("edges.json")).unwrap();
        (kept, to)
    }

    pub(crate) fn edge(&self, name: &str) -> EdgeStatus {
        let all = self.fleet.status();
        all.into_iter().find(|edge| edge.name == name).unwrap()
    }

    /// Makes another cloud the peer of this one, which has this name there.
    pub(crate) fn send_to(&self, peer: &Cloud, name: &str) {
        let settings = PeerSettings {
            url: Some(peer.url.clone()),
            name: name.to_owned(),
            ..PeerSettings::default()
        };
        let own = self._guards.0.clone();
        let peers = Peers::of(&settings, &self.fleet, &self.relays, own).unwrap();
        let stopping = self._guards.2.subscribe();
        tokio::spawn(Arc::new(peers.unwrap()).run(stopping));
    }

    /// Passes an edge on to another cloud, under a name of its own there.
    pub(crate) async fn relay(
        &self,
        name: &str,
        to: &Cloud,
        under: &str,
    ) -> Result<(), ClusterError> {
        let spec = RelaySpec {
            invitation: to.invite(under),
            ..RelaySpec::default()
        };
        self.relays.relay(name, spec).await
    }
}

fn files_under(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files_under(&path)),
            false => found.push(path),
        }
    }
    found
}

/// What a server answers its peer: its identity, and the answer to a roster.
async fn answer_peer<S: AsyncRead + AsyncWrite + Unpin>(
    fleet: &EdgeCopies,
    stream: &mut S,
    length: usize,
) {
    let mut body = vec![0; length];
    if stream.read_exact(&mut body).await.is_err() {
        return;
    }
    let answer = match serde_json::from_slice::<Roster>(&body) {
        Ok(roster) => serde_json::to_string(&fleet.mirror(&roster).unwrap()).unwrap(),
        Err(_) => format!("{{\"identity\":\"{:016x}\"}}", fleet.node()),
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        answer.len()
    );
    let _ = stream.write_all((head + &answer).as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// What a server does with a request for a connection.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    fleet: Arc<EdgeCopies>,
    mut stream: S,
    stopping: watch::Receiver<bool>,
) {
    let Some(head) = RequestHead::read(&mut stream).await else {
        return;
    };
    match head.path() {
        "/api/v1/sync" => {
            let length = head.header("content-length").parse().unwrap_or_default();
            answer_peer(&fleet, &mut stream, length).await;
        }
        // With the clock that tests begin with.
        "/health" => {
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\ndate: Tue, 01 Dec 2026 00:00:00 GMT\r\n\r\n";
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
        _ => fleet.serve_request(&head, stream, stopping).await,
    }
}

/// An edge.
pub(crate) struct Edge {
    pub(crate) db: Database,
    pub(crate) uplink: Arc<Uplink>,
    written: i64,
    _guards: (TempDir, watch::Sender<bool>),
}

impl Edge {
    pub(crate) async fn start(invitation: &str) -> Edge {
        Edge::joining(invitation, false).await
    }

    /// One whose cloud puts aside what it has under the name.
    pub(crate) async fn start_replacing(invitation: &str) -> Edge {
        Edge::joining(invitation, true).await
    }

    /// One that frees rows that its cloud has.
    pub(crate) async fn start_freeing(invitation: &str) -> Edge {
        let frees = UplinkSettings {
            free_after: Some(Duration::ZERO),
            ..settings()
        };
        Edge::with(invitation, false, frees).await
    }

    /// One with settings of its own.
    pub(crate) async fn start_with(invitation: &str, settings: UplinkSettings) -> Edge {
        Edge::with(invitation, false, settings).await
    }

    async fn joining(invitation: &str, anew: bool) -> Edge {
        Edge::with(invitation, anew, settings()).await
    }

    async fn with(invitation: &str, anew: bool, settings: UplinkSettings) -> Edge {
        let kept = tempfile::tempdir().unwrap();
        let db = Database::open_in(Env::system(), Options::new(kept.path())).unwrap();
        join(kept.path(), invitation, None, None, anew)
            .await
            .unwrap();
        let uplink = Uplink::new(db.clone(), Env::system(), kept.path(), settings);
        let uplink = Arc::new(uplink.unwrap());
        let (stop, stopping) = watch::channel(false);
        tokio::spawn(Arc::clone(&uplink).run(stopping));
        Edge {
            db,
            uplink,
            written: 1_700_000_000,
            _guards: (kept, stop),
        }
    }

    /// Writes and stores some rows.
    pub(crate) fn write(&mut self) {
        self.write_values(&|time| (time % 977) as f64);
    }

    /// Writes and stores some rows from a second on.
    pub(crate) fn write_from(&mut self, second: i64) {
        self.written = second;
        self.write();
    }

    /// The same, with values that take some room.
    pub(crate) fn write_noise(&mut self) {
        let noise =
            |time: i64| (time.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64) >> 40) % 10_007;
        self.write_values(&|time| noise(time) as f64);
    }

    fn write_values(&mut self, value: &dyn Fn(i64) -> f64) {
        let mut batch = Batch::new();
        let stream = StreamName::new("m", [("id", "1")]);
        let rows = batch.stream(&stream);
        for _ in 0..5_000 {
            self.written += 1;
            let value = Value::F64(value(self.written));
            rows.row(self.written * 1_000_000_000, [("v", value)])
                .unwrap();
        }
        self.db.commit(batch).unwrap();
        self.db.flush().unwrap();
    }

    /// Writes a row at a second without storing it.
    pub(crate) fn write_one(&mut self, second: i64) {
        let mut batch = Batch::new();
        let stream = StreamName::new("m", [("id", "1")]);
        let rows = batch.stream(&stream);
        rows.row(second * 1_000_000_000, [("v", Value::F64(0.5))])
            .unwrap();
        self.db.commit(batch).unwrap();
    }
}
