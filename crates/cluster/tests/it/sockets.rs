//! Connections over TLS through a proxy that counts their bytes, with clocks that tests set.

use crate::nodes::{serve, settings, until};
use headwater_cluster::{
    BudgetLimits, EdgeCopies, EdgeState, EdgeStatus, LagCause, NextCaState, QuietCause, QuietHours,
    StreamShare, Uplink, UplinkSettings, UplinkState, UplinkStatus, database_of, join,
};
use headwater_engine::{Database, Options};
use headwater_io::{Env, ManualClock};
use headwater_types::{Batch, ClosedRange, StreamName, Timestamp, Value};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// 2026-12-01, in seconds since 1970.
const NOW: i64 = 1_796_083_200;
/// 2098-01-01, in seconds since 1970.
const FAR: i64 = 4_039_372_800;
const DAY: i64 = 86_400;
/// A look of the edge, and some more.
const LOOK: Duration = Duration::from_millis(1_300);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_nanos(seconds * 1_000_000_000)
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

fn env(clock: &Arc<ManualClock>) -> Env {
    Env {
        clock: Arc::clone(clock) as _,
        ..Env::system()
    }
}

/// Bytes and connections of a proxy.
#[derive(Default)]
struct Passed {
    bytes: AtomicU64,
    connections: AtomicU64,
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    passed: Arc<Passed>,
) {
    let mut buffer = vec![0; 65_536];
    while let Ok(bytes @ 1..) = from.read(&mut buffer).await {
        passed.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if to.write_all(&buffer[..bytes]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}

async fn proxy(to: SocketAddr, passed: Arc<Passed>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(to).await.unwrap();
            passed.connections.fetch_add(1, Ordering::Relaxed);
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            tokio::spawn(pass(from_client, to_server, Arc::clone(&passed)));
            tokio::spawn(pass(from_server, to_client, Arc::clone(&passed)));
        }
    });
    addr
}

/// A certificate for `localhost` that is valid from one day of 2026 until one of 2027.
fn acceptor(from: (u8, u8), to: (u8, u8)) -> (TlsAcceptor, String) {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_before = date_time_ymd(2026, from.0, from.1);
    params.not_after = date_time_ymd(2027, to.0, to.1);
    let key = KeyPair::generate().unwrap();
    let cert = params.self_signed(&key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], der)
        .unwrap();
    (TlsAcceptor::from(Arc::new(config)), cert.pem())
}

/// A cloud and an edge of it behind a proxy.
struct World {
    fleet: Arc<EdgeCopies>,
    cloud_clock: Arc<ManualClock>,
    /// The certificate of the cloud, for the next connection.
    tls: Arc<Mutex<TlsAcceptor>>,
    clock: Arc<ManualClock>,
    db: Database,
    uplink: Arc<Uplink>,
    passed: Arc<Passed>,
    written: i64,
    edge_dir: TempDir,
    _guards: (TempDir, watch::Sender<bool>),
}

/// Parts of a world that differ.
struct Setup {
    valid_from: (u8, u8),
    clock: i64,
    /// Proven time of an earlier start of the edge.
    proven: Option<i64>,
    budget: BudgetLimits,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            valid_from: (10, 1),
            clock: NOW,
            proven: None,
            budget: BudgetLimits::default(),
        }
    }
}

impl World {
    async fn start(setup: Setup) -> World {
        let (cloud_dir, edge_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let cloud_clock = Arc::new(ManualClock::new(at(NOW)));
        let options = Options::new(cloud_dir.path());
        let own = Database::open_in(env(&cloud_clock), options.clone()).unwrap();
        let fleet = EdgeCopies::open(env(&cloud_clock), cloud_dir.path(), options).unwrap();
        let fleet = Arc::new(fleet);
        fleet.set_node(database_of(&own).unwrap().0);
        let (stop, stopping) = watch::channel(false);
        let (tls, ca) = acceptor(setup.valid_from, (3, 1));
        let tls = Arc::new(Mutex::new(tls));
        let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let secret = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (joins_at, addr) = (plain.local_addr().unwrap(), secret.local_addr().unwrap());
        let (served, stops) = (Arc::clone(&fleet), stopping.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = plain.accept().await {
                tokio::spawn(serve(Arc::clone(&served), stream, stops.clone()));
            }
        });
        let (served, stops) = (Arc::clone(&fleet), stopping.clone());
        let shown = Arc::clone(&tls);
        tokio::spawn(async move {
            while let Ok((stream, _)) = secret.accept().await {
                let (served, stops) = (Arc::clone(&served), stops.clone());
                let tls = shown.lock().unwrap().clone();
                tokio::spawn(async move {
                    if let Ok(stream) = tls.accept(stream).await {
                        serve(served, stream, stops).await;
                    }
                });
            }
        });
        let url = format!("http://{joins_at}");
        let life = Duration::from_secs(3_600);
        let invited = fleet.invite("e", &url, None, None, life, false).unwrap();
        let dir = edge_dir.path();
        join(dir, &invited, None, None, false).await.unwrap();
        // From here on over TLS.
        let passed = Arc::new(Passed::default());
        let through = proxy(addr, Arc::clone(&passed)).await;
        let path = dir.join("uplink.json");
        let text = std::fs::read(&path).unwrap();
        let mut file: serde_json::Value = serde_json::from_slice(&text).unwrap();
        file["url"] = format!("https://localhost:{}", through.port()).into();
        file["ca"] = ca.into();
        std::fs::write(&path, file.to_string()).unwrap();
        if let Some(proven) = setup.proven {
            let text = format!("{{\"version\":1,\"proven\":{proven}}}");
            std::fs::write(dir.join("uplink.time"), text).unwrap();
        }
        let clock = Arc::new(ManualClock::new(at(setup.clock)));
        let db = Database::open_in(env(&clock), Options::new(dir)).unwrap();
        let limits = UplinkSettings {
            budget: setup.budget,
            ..settings()
        };
        let uplink = Arc::new(Uplink::new(db.clone(), env(&clock), dir, limits).unwrap());
        tokio::spawn(Arc::clone(&uplink).run(stopping));
        World {
            fleet,
            cloud_clock,
            tls,
            clock,
            db,
            uplink,
            passed,
            written: NOW - 50 * DAY,
            edge_dir,
            _guards: (cloud_dir, stop),
        }
    }

    fn edge(&self) -> EdgeStatus {
        self.fleet.edge_status("e").unwrap()
    }

    fn status(&self) -> UplinkStatus {
        self.uplink.status().unwrap()
    }

    fn bytes(&self) -> u64 {
        self.passed.bytes.load(Ordering::Relaxed)
    }

    /// Moves both clocks.
    fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
        self.cloud_clock.advance(Duration::from_secs(seconds));
    }

    fn connections(&self) -> u64 {
        self.passed.connections.load(Ordering::Relaxed)
    }

    /// Certificates of the cloud that the edge has stored.
    fn stored_certificates(&self) -> usize {
        let path = self.edge_dir.path().join("uplink.json");
        let text = std::fs::read_to_string(path).unwrap();
        text.matches("BEGIN CERTIFICATE").count()
    }

    /// Ends the connection, and waits for the next one.
    async fn reconnect(&self) {
        let before = self.connections();
        self.uplink.pause(true).unwrap();
        until("paused", || self.status().state == UplinkState::Paused).await;
        self.uplink.pause(false).unwrap();
        until("a new connection", || self.connections() > before).await;
    }

    async fn connected(&self) {
        until("connected", || {
            self.status().state == UplinkState::Connected
        })
        .await;
    }

    /// Writes rows that do not compress, and stores them.
    fn write(&mut self) {
        let mut batch = Batch::new();
        let stream = StreamName::new("m", [("id", "1")]);
        let rows = batch.stream(&stream);
        for _ in 0..5_000 {
            self.written += 1;
            let mixed = (self.written as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let value = Value::F64(f64::from_bits((mixed ^ (mixed >> 32)) >> 2));
            let time = self.written * 1_000_000_000;
            rows.row(time, [("v", value)]).unwrap();
        }
        self.db.commit(batch).unwrap();
        self.db.flush().unwrap();
    }

    async fn current(&self) {
        until("the cloud has all", || {
            let number = self.db.state_number().unwrap();
            let edge = self.edge();
            edge.state == EdgeState::Current
                && edge.copy.is_some_and(|copy| copy.state == number)
                && self.status().confirmed_number == Some(number)
        })
        .await;
    }
}

#[test]
fn each_byte_of_the_socket_is_charged() {
    runtime().block_on(async {
        let mut world = World::start(Setup::default()).await;
        world.write();
        world.current().await;
        let agree = || {
            let (sent, received) = world.uplink.socket_bytes();
            let status = world.status();
            let all = [world.bytes(), sent + received];
            all == [status.sent_today; 2] && status.sent_this_month == status.sent_today
        };
        until("charged as passed", agree).await;
        // Rows that do not compress, TLS and frames: more than the copy has.
        assert!(world.bytes() > world.edge().copy.unwrap().bytes);
    });
}

#[test]
fn an_idle_hour_over_tls_stays_below_a_day_of_100_kilobytes() {
    runtime().block_on(async {
        let mut world = World::start(Setup::default()).await;
        world.write();
        world.current().await;
        tokio::time::sleep(2 * LOOK).await;
        let before = world.bytes();
        for _ in 0..12 {
            world.advance(300);
            tokio::time::sleep(LOOK).await;
        }
        let hour = world.bytes() - before;
        assert!(hour > 0, "there were signs of life");
        assert!(hour * 24 < 100_000, "{hour} bytes in an hour");
        assert_eq!(world.passed.connections.load(Ordering::Relaxed), 1);
        assert_eq!(world.status().state, UplinkState::Connected);
        assert_eq!(world.edge().state, EdgeState::Current);
        // What is written then comes without delay.
        world.write();
        world.current().await;
    });
}

#[test]
fn no_byte_passes_in_quiet_hours_which_the_cloud_knows() {
    runtime().block_on(async {
        let budget = BudgetLimits {
            quiet: vec![QuietHours { from: 60, to: 120 }],
            ..BudgetLimits::default()
        };
        let mut world = World::start(Setup {
            budget,
            ..Setup::default()
        })
        .await;
        world.advance(3_590);
        world.write();
        world.current().await;
        world.advance(6);
        until("quiet", || world.status().state == UplinkState::Quiet).await;
        until("known to be quiet", || {
            world.edge().state == EdgeState::Quiet
        })
        .await;
        let lag = world.edge().lag;
        assert_eq!(lag.cause, Some(LagCause::QuietHours));
        assert_eq!(lag.until_ns, Some(at(NOW + 7_200).as_nanos()));
        for quiet in [world.status().quiet, world.edge().quiet] {
            let quiet = quiet.unwrap();
            assert_eq!(quiet.until_ns, at(NOW + 7_200).as_nanos());
            assert_eq!(quiet.cause, QuietCause::QuietHours);
        }
        tokio::time::sleep(LOOK).await;
        let before = world.bytes();
        world.write();
        for _ in 0..3 {
            world.advance(1_200);
            tokio::time::sleep(LOOK).await;
        }
        assert_eq!(world.bytes(), before);
        world.advance(5);
        world.current().await;
        assert_eq!(world.edge().quiet, None);
    });
}

#[test]
fn no_day_has_more_bytes_at_the_socket_than_its_cap() {
    runtime().block_on(async {
        let cap = 300_000;
        let budget = BudgetLimits {
            bytes_per_day: Some(cap),
            ..BudgetLimits::default()
        };
        let mut world = World::start(Setup {
            budget,
            ..Setup::default()
        })
        .await;
        for _ in 0..10 {
            world.write();
        }
        let is_spent = || {
            let quiet = world.status().quiet;
            quiet.is_some_and(|quiet| quiet.cause == QuietCause::DayCap)
        };
        until("the cap is spent", is_spent).await;
        tokio::time::sleep(2 * LOOK).await;
        let first = world.bytes();
        assert!(first <= cap && first > cap * 9 / 10, "{first}");
        assert_eq!(world.edge().state, EdgeState::Quiet);
        // More than the next day has room for.
        for _ in 0..10 {
            world.write();
        }
        world.advance(DAY as u64);
        until("the next day goes on", || world.bytes() > first).await;
        // The state of the day before may still be reported.
        let much = first + cap / 2;
        until("and takes as much", || world.bytes() > much).await;
        let is_spent = || {
            let quiet = world.status().quiet;
            quiet.is_some_and(|quiet| quiet.cause == QuietCause::DayCap)
        };
        until("and is spent", is_spent).await;
        tokio::time::sleep(2 * LOOK).await;
        let second = world.bytes() - first;
        assert!(second <= cap, "{second}");
    });
}

#[test]
fn clocks_of_1970_and_2098_connect_at_a_proven_time() {
    runtime().block_on(async {
        // The certificate is valid when the program was released.
        let world = World::start(Setup {
            clock: 5,
            ..Setup::default()
        })
        .await;
        world.connected().await;
        let path = world.edge_dir.path().join("uplink.time");
        until("the cloud's time is kept", || path.exists()).await;
        let text = std::fs::read_to_string(&path).unwrap();
        let proven = format!("\"proven\": {NOW}");
        assert!(text.contains(&proven), "{text}");
        for clock in [5, FAR] {
            // It is not valid yet, or not any more, and nothing is proven.
            let setup = |proven| Setup {
                valid_from: (11, 15),
                clock,
                proven,
                ..Setup::default()
            };
            let world = World::start(setup(None)).await;
            until("it is refused", || {
                let error = world.status().error.unwrap_or_default();
                error.contains("certificate")
            })
            .await;
            assert_ne!(world.status().state, UplinkState::Connected);
            let world = World::start(setup(Some(NOW - DAY))).await;
            world.connected().await;
        }
        // A proven time long before the certificate was valid does not help.
        let world = World::start(Setup {
            valid_from: (11, 15),
            clock: FAR,
            proven: Some(NOW - 400 * DAY),
            ..Setup::default()
        })
        .await;
        tokio::time::sleep(2 * LOOK).await;
        assert_ne!(world.status().state, UplinkState::Connected);
    });
}

#[test]
fn a_certificate_that_is_not_valid_is_told_with_the_clocks_of_both_sides() {
    runtime().block_on(async {
        for (clock, text) in [
            (5, "the clock here says 1970-01-01T00:00:05Z"),
            (FAR, "the clock here says 2098-01-01T00:00:00Z"),
        ] {
            let world = World::start(Setup {
                valid_from: (11, 15),
                clock,
                ..Setup::default()
            })
            .await;
            let parts = [
                "it is valid from 2026-11-15T00:00:00Z until 2027-03-01T00:00:00Z",
                text,
                "no cloud has proven a time",
                "the clock there said 2026-12-01T00:00:00Z (not verified)",
            ];
            until("it is told", || {
                let error = world.status().error.unwrap_or_default();
                parts.iter().all(|part| error.contains(part))
            })
            .await;
        }
    });
}

#[test]
fn an_edge_with_a_certificate_of_its_own_survives_a_renewal_with_overlap() {
    runtime().block_on(async {
        let mut world = World::start(Setup::default()).await;
        world.write();
        world.current().await;
        assert_eq!(world.stored_certificates(), 1);
        let ends = world.status().certificate_ends_ns;
        assert_eq!(ends, Some(at(NOW + 90 * DAY).as_nanos()));
        let (next, pem) = acceptor((11, 20), (3, 20));
        assert_eq!(world.edge().next_ca, None);
        world.fleet.send_next_ca(pem.clone());
        until("the edge has both", || world.stored_certificates() == 2).await;
        until("the cloud knows that", || {
            world.edge().next_ca == Some(NextCaState::Has)
        })
        .await;
        *world.tls.lock().unwrap() = next;
        // No connection ends for it.
        world.write();
        world.current().await;
        assert_eq!(world.connections(), 1);
        // The next one sees the next certificate, also with a clock that has stopped or leapt.
        for clock in [NOW, 5, FAR, NOW + 100 * DAY, NOW] {
            world.clock.set(at(clock));
            world.reconnect().await;
            world.connected().await;
            let ends = world.status().certificate_ends_ns;
            assert_eq!(ends, Some(at(NOW + 109 * DAY).as_nanos()), "clock {clock}");
        }
        world.write();
        world.current().await;
        // A certificate that was told before is not stored again, and one that was never told is
        // refused.
        world.fleet.send_next_ca(String::new());
        assert_eq!(world.edge().next_ca, None);
        // What the edge answered before counts, until it answers again.
        let (stranger, other) = acceptor((11, 20), (3, 20));
        world.fleet.send_next_ca(pem);
        assert_eq!(world.edge().next_ca, Some(NextCaState::Has));
        *world.tls.lock().unwrap() = stranger;
        world.reconnect().await;
        until("refused", || {
            let error = world.status().error.unwrap_or_default();
            error.contains("certificate")
        })
        .await;
        assert_ne!(world.status().state, UplinkState::Connected);
        assert_eq!(world.stored_certificates(), 2);
        // It cannot be told of that one any more, and the cloud says so.
        world.fleet.send_next_ca(other);
        assert_eq!(world.edge().next_ca, Some(NextCaState::Lacks));
    });
}

#[test]
fn a_leap_of_100_days_ends_no_connection_and_begins_no_day() {
    runtime().block_on(async {
        let budget = BudgetLimits {
            bytes_per_day: Some(50_000_000),
            ..BudgetLimits::default()
        };
        let mut world = World::start(Setup {
            budget,
            ..Setup::default()
        })
        .await;
        world.write();
        world.current().await;
        let spent = world.status().sent_today;
        assert!(spent > 0);
        for leap in [100 * DAY, -100 * DAY, 0] {
            world.clock.set(at(NOW + leap));
            tokio::time::sleep(2 * LOOK).await;
            world.write();
            world.current().await;
            assert!(world.status().sent_today > spent, "another day has begun");
        }
        // What is on its way is counted by one end before the other.
        until("both ends count alike", || {
            world.status().sent_today == world.bytes()
        })
        .await;
        assert_eq!(world.passed.connections.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn the_planner_says_why_rows_of_a_stream_are_here_or_not() {
    runtime().block_on(async {
        let mut world = World::start(Setup::default()).await;
        world.write();
        world.current().await;
        let lag = world.edge().lag;
        assert_eq!((lag.seconds, lag.cause), (Some(0), None));
        let stream = || StreamName::new("m", [("id", "1")]);
        let span = ClosedRange::nanos(0, at(NOW).as_nanos());
        let found = world.fleet.why("e", stream(), span).await.unwrap();
        assert!(!found.ranges.is_empty());
        for range in &found.ranges {
            let reason = range.reason.as_deref();
            assert_eq!((range.state.as_str(), reason), ("here", Some("rows")));
        }
        let other = StreamName::new("m", [("id", "2")]);
        let found = world.fleet.why("e", other, span).await.unwrap();
        let states: Vec<_> = found.ranges.iter().map(|r| r.state.as_str()).collect();
        assert!(states.iter().all(|state| *state == "not_subscribed"));
        let before = ClosedRange::nanos(0, 1);
        let found = world.fleet.why("e", stream(), before).await.unwrap();
        assert!(found.ranges.is_empty(), "{found:?}");
        // Rows that no rule subscribes to any more, and that come later, are not on their way.
        let want = StreamShare::Summaries(20);
        world.fleet.set_subscription("e", want, Vec::new()).unwrap();
        world.written += 30 * DAY;
        world.write();
        world.current().await;
        let span = ClosedRange::nanos(at(world.written - 100).as_nanos(), i64::MAX);
        let found = world.fleet.why("e", stream(), span).await.unwrap();
        assert!(
            found
                .ranges
                .iter()
                .all(|range| range.reason.as_deref() != Some("rows"))
        );
        // Without a connection the cause is the answer.
        world.fleet.pause("e", true).unwrap();
        until("paused", || world.edge().state == EdgeState::Paused).await;
        assert_eq!(world.edge().lag.cause, Some(LagCause::Paused));
        world.uplink.pause(true).unwrap();
        until("gone", || world.edge().state == EdgeState::Offline).await;
        assert_eq!(world.edge().lag.cause, Some(LagCause::NotConnected));
        let refused = world.fleet.why("e", stream(), span).await.unwrap_err();
        assert!(refused.to_string().contains("not connected"), "{refused}");
    });
}
