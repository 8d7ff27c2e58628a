//! Nodes in one process, with real connections between them.

use headwater_engine::{Database, Options};
use headwater_fleet::{
    BudgetLimits, EdgeStatus, Fleet, FleetError, RelaySpec, Relays, Rules, Uplink, UplinkSettings,
    accept_key, database_of, join,
};
use headwater_io::Env;
use headwater_types::{Batch, StreamName, Value};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
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
        rules: Rules::default(),
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
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) relays: Arc<Relays>,
    pub(crate) dir: PathBuf,
    url: String,
    _kept: (Database, TempDir, watch::Sender<bool>),
}

impl Cloud {
    pub(crate) async fn start() -> Cloud {
        let kept = tempfile::tempdir().unwrap();
        let dir = kept.path().to_owned();
        let db = Database::open_in(Env::system(), Options::new(&dir)).unwrap();
        let fleet = Fleet::open(Env::system(), &dir, Options::new(&dir)).unwrap();
        let fleet = Arc::new(fleet);
        fleet.set_node(database_of(&db).unwrap().0);
        let relays = Arc::new(Relays::open(&fleet, &dir, settings()).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopping) = watch::channel(false);
        tokio::spawn(Arc::clone(&relays).run(stopping.clone()));
        let served = Arc::clone(&fleet);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(Arc::clone(&served), stream, stopping.clone()));
            }
        });
        Cloud {
            fleet,
            relays,
            dir,
            url,
            _kept: (db, kept, stop),
        }
    }

    pub(crate) fn invite(&self, name: &str) -> String {
        let invited = self.fleet.invite(name, &self.url, None, None, VALID, false);
        invited.unwrap()
    }

    pub(crate) fn invite_again(&self, name: &str) -> String {
        let invited = self.fleet.invite(name, &self.url, None, None, VALID, true);
        invited.unwrap()
    }

    pub(crate) fn edge(&self, name: &str) -> EdgeStatus {
        let all = self.fleet.status();
        all.into_iter().find(|edge| edge.name == name).unwrap()
    }

    /// Passes an edge on to another cloud, under a name of its own there.
    pub(crate) async fn relay(
        &self,
        name: &str,
        to: &Cloud,
        under: &str,
    ) -> Result<(), FleetError> {
        let spec = RelaySpec {
            invitation: to.invite(under),
            ..RelaySpec::default()
        };
        self.relays.relay(name, spec).await
    }
}

/// What a server does with a request for a connection.
async fn serve(fleet: Arc<Fleet>, mut stream: TcpStream, stopping: watch::Receiver<bool>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let header = |name: &str| {
        let mut lines = head.lines();
        let found = lines.find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then(|| value.to_owned())
        });
        found.unwrap_or_default()
    };
    let secret = header("authorization").replace("Bearer ", "");
    let accept = accept_key(&header("sec-websocket-key"));
    let answer = match fleet.known(&secret) {
        Ok(_) => format!(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: {accept}\r\n\r\n"
        ),
        Err(_) => "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n".to_owned(),
    };
    if stream.write_all(answer.as_bytes()).await.is_ok() {
        fleet.serve(stream, &secret, stopping).await;
    }
}

/// An edge.
pub(crate) struct Edge {
    pub(crate) db: Database,
    pub(crate) uplink: Arc<Uplink>,
    written: i64,
    _kept: (TempDir, watch::Sender<bool>),
}

impl Edge {
    pub(crate) async fn start(invitation: &str) -> Edge {
        Edge::joining(invitation, false).await
    }

    /// One whose cloud puts aside what it has under the name.
    pub(crate) async fn start_anew(invitation: &str) -> Edge {
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
            _kept: (kept, stop),
        }
    }

    /// Writes and stores some rows.
    pub(crate) fn write(&mut self) {
        self.write_values(&|time| (time % 977) as f64);
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
}
