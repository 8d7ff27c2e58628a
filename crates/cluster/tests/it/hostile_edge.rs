//! A hostile edge with a valid key, as a client of the socket: whatever it sends, it is refused
//! with a reason or ignored, and other edges and the node go on.

use crate::nodes::{Cloud, Edge, until};
use futures_util::{SinkExt, StreamExt};
use headwater_cluster::{EdgeState, UPLINK_FILE, join};
use headwater_engine::{AggregateSpec, Bins, Database, Options, Snapshot, State, StateName};
use headwater_io::{Chance, Env, SeededChance};
use headwater_protocol::replication::{
    Agent, Budget, BudgetLimits, Message, Now, SegmentRange, Spent, decode, encode,
};
use headwater_types::{Batch, ClosedRange, StreamName, Value};
use serde_json::{Value as Json, json};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{WebSocketStream, client_async};

/// Far longer than an answer takes.
const WITHIN: Duration = Duration::from_secs(60);

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// The key of an edge that has joined, without a connection of its own.
async fn key(cloud: &Cloud, name: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    join(dir.path(), &cloud.invite(name), None, None, false)
        .await
        .unwrap();
    let file = std::fs::read(dir.path().join(UPLINK_FILE)).unwrap();
    let file: Json = serde_json::from_slice(&file).unwrap();
    file["key"].as_str().unwrap().to_owned()
}

/// A message or note of the cloud.
enum Received {
    Message(Message),
    Note(Json),
    Other,
    End,
}

struct Client(WebSocketStream<TcpStream>);

impl Client {
    async fn connect(cloud: &Cloud, key: &str) -> Client {
        let addr = cloud.url.strip_prefix("http://").unwrap();
        let tcp = TcpStream::connect(addr).await.unwrap();
        let mut request = format!("ws://{addr}/api/v1/sync/connect")
            .into_client_request()
            .unwrap();
        let bearer = format!("Bearer {key}").parse().unwrap();
        request.headers_mut().insert("authorization", bearer);
        Client(client_async(request, tcp).await.unwrap().0)
    }

    /// False if the cloud has ended the connection.
    async fn frame(&mut self, frame: Frame) -> bool {
        timeout(WITHIN, self.0.send(frame)).await.unwrap().is_ok()
    }

    async fn bytes(&mut self, bytes: Vec<u8>) -> bool {
        self.frame(Frame::binary(bytes)).await
    }

    async fn message(&mut self, message: &Message) -> bool {
        let mut bytes = vec![0];
        bytes.extend(encode(message));
        self.bytes(bytes).await
    }

    async fn note(&mut self, note: Json) -> bool {
        self.frame(Frame::text(note.to_string())).await
    }

    async fn next(&mut self) -> Received {
        match timeout(WITHIN, self.0.next()).await.unwrap() {
            Some(Ok(Frame::Binary(bytes))) => {
                let (kind, bytes) = bytes.split_first().unwrap();
                let plain = match kind {
                    0 => bytes.to_vec(),
                    _ => zstd::bulk::decompress(bytes, 64 << 20).unwrap(),
                };
                decode(&plain).map_or(Received::Other, Received::Message)
            }
            Some(Ok(Frame::Text(text))) => Received::Note(serde_json::from_str(&text).unwrap()),
            Some(Ok(Frame::Close(_)) | Err(_)) | None => Received::End,
            Some(Ok(_)) => Received::Other,
        }
    }

    /// The code and the text of a refusal, whatever comes before.
    async fn refusal(&mut self) -> (String, String) {
        loop {
            match self.next().await {
                Received::Note(note) if !note["refused"].is_null() => {
                    let of = |key: &str| note["refused"][key].as_str().unwrap().to_owned();
                    return (of("code"), of("text"));
                }
                Received::End => panic!("the connection ended without a reason"),
                _ => {}
            }
        }
    }

    /// The number of the request for the first state.
    async fn first_request(&mut self) -> u64 {
        loop {
            match self.next().await {
                Received::Message(Message::AskState { request, .. }) => return request,
                Received::End => panic!("no state was requested"),
                _ => {}
            }
        }
    }
}

/// A database of the hostile edge, and what answers for it.
struct Source {
    db: Database,
    agent: Agent,
    _dir: TempDir,
}

impl Source {
    /// One with rows of an own stream, and of the stream that the others have, at their instants.
    fn new() -> Source {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open_in(Env::system(), Options::new(dir.path())).unwrap();
        let mut batch = Batch::new();
        for id in ["1", "hostile"] {
            let stream = StreamName::new("h", [("id", id)]);
            let rows = batch.stream(&stream);
            for n in 1..=3_000 {
                let time = (1_700_000_000 + n) * 1_000_000_000;
                rows.row(time, [("v", Value::F64(-1.0 - n as f64))])
                    .unwrap();
            }
        }
        db.commit(batch).unwrap();
        db.flush().unwrap();
        let budget = Budget::new(BudgetLimits::default(), Spent::default());
        Source {
            db,
            agent: Agent::new(u64::MAX, budget),
            _dir: dir,
        }
    }

    fn now() -> Now {
        let clock = Env::system().clock;
        Now {
            monotonic: clock.monotonic(),
            wall: clock.now(),
        }
    }

    fn name(&mut self) -> StateName {
        match self.agent.hello(&self.db).unwrap() {
            Message::Hello(name) => name,
            other => panic!("{other:?}"),
        }
    }

    fn state(&self) -> State {
        self.db.hold_state(None).unwrap().state().clone()
    }

    fn answers(&mut self, asked: Message) -> Vec<Message> {
        self.agent.answer(&self.db, Source::now(), asked).unwrap()
    }
}

/// A cloud with an honest edge, which has rows.
async fn world() -> (Cloud, Edge) {
    let cloud = Cloud::start().await;
    let mut honest = Edge::start(&cloud.invite("honest")).await;
    honest.write();
    until("the honest edge is here", || cloud.rows() == 5_000).await;
    (cloud, honest)
}

/// The honest edge goes on, and all of its rows are in answers.
async fn goes_on(cloud: &Cloud, honest: &mut Edge, rows: &mut u64) {
    honest.write();
    *rows += 5_000;
    until("the honest edge goes on", || cloud.rows() == *rows).await;
    assert_eq!(cloud.edge("honest").state, EdgeState::Current);
    assert_eq!(cloud.edge("honest").error, None);
}

fn noise(chance: &dyn Chance, len: u64) -> Vec<u8> {
    (0..len)
        .map(|_| u8::try_from(chance.next_u64() & 0xff).unwrap())
        .collect()
}

/// A state that no database was in.
fn nowhere() -> StateName {
    StateName {
        identity: 1,
        incarnation: 2,
        opening: 3,
        number: u64::MAX,
        sequence: u64::MAX,
        view: 0,
    }
}

/// Messages of a copy, and answers to what was never asked.
fn out_of_order(chance: &dyn Chance) -> Vec<Message> {
    let state = nowhere();
    let ranges = vec![SegmentRange {
        segment: u64::MAX,
        offset: u64::MAX,
        bytes: u32::MAX,
    }];
    vec![
        Message::AskState {
            request: 1,
            known_state: Some(state),
        },
        Message::Fetch {
            request: 1,
            state,
            ranges: ranges.clone(),
        },
        Message::Compare {
            request: 1,
            state,
            ranges,
        },
        Message::Confirm {
            state,
            segments: vec![(1, u64::MAX); 1000],
            proofs: vec![(1, [7; 32]); 1000],
        },
        Message::State {
            request: 7,
            bytes: noise(chance, 5_000),
        },
        Message::Bytes {
            request: 7,
            segment: 1,
            offset: u64::MAX,
            bytes: noise(chance, 5_000),
        },
        Message::Tail {
            request: 7,
            bytes: noise(chance, 5_000),
        },
        Message::Digests {
            request: 7,
            digests: vec![[0; 32]; 1000],
        },
        Message::Wait {
            request: 7,
            millis: u64::MAX,
        },
        Message::Done { request: 7 },
        Message::Unavailable { request: 7 },
    ]
}

#[test]
fn garbage_bombs_and_messages_out_of_order_are_ignored() {
    runtime().block_on(async {
        let (cloud, mut honest) = world().await;
        let (mut rows, chance) = (5_000, SeededChance::new(36));
        let key = key(&cloud, "h").await;
        let mut client = Client::connect(&cloud, &key).await;
        // Bytes that are no message, and packed ones that would be large.
        for len in 0..300 {
            let mut bytes = noise(&chance, len);
            if let Some(kind) = bytes.first_mut() {
                *kind %= 3;
            }
            assert!(client.bytes(bytes).await);
        }
        let mut bomb = vec![1];
        bomb.extend(zstd::bulk::compress(&vec![0; 300 << 20], 1).unwrap());
        assert!(bomb.len() < 1 << 20);
        assert!(client.bytes(bomb.clone()).await);
        (bomb[0], bomb[5]) = (2, 0xff);
        assert!(client.bytes(bomb).await);
        for text in ["", "{}", "[[[[", "{\"path\":{\"nodes\":7}}", "\u{1b}[2J"] {
            assert!(client.frame(Frame::text(text)).await);
        }
        assert!(client.frame(Frame::text("x".repeat(1 << 20))).await);
        // Messages with a bad checksum, and those that nobody waits for.
        let mut cut = vec![0];
        cut.extend(encode(&Message::Hello(nowhere())));
        *cut.last_mut().unwrap() ^= 1;
        assert!(client.bytes(cut).await);
        for message in out_of_order(&chance) {
            assert!(client.message(&message).await, "{message:?}");
        }
        // It is still asked for a first state, and an answer that is none is asked for again.
        let request = client.first_request().await;
        let bytes = noise(&chance, 500);
        assert!(client.message(&Message::State { request, bytes }).await);
        goes_on(&cloud, &mut honest, &mut rows).await;
        assert_eq!(cloud.edge("h").copy, None);
    });
}

#[test]
fn a_flood_of_small_messages_delays_nobody_and_its_texts_are_bounded() {
    runtime().block_on(async {
        let (cloud, mut honest) = world().await;
        let mut rows = 5_000;
        let key = key(&cloud, "h").await;
        let mut client = Client::connect(&cloud, &key).await;
        let mut source = Source::new();
        let name = source.name();
        for n in 0..20_000_u64 {
            let number = name.number.wrapping_add(n);
            let sent = match n % 4 {
                0 => {
                    client
                        .message(&Message::Hello(StateName { number, ..name }))
                        .await
                }
                1 => client.note(json!({"verify": {}})).await,
                2 => {
                    client
                        .note(json!({"quiet": {"until_ns": i64::MAX, "cause": "day_cap"}}))
                        .await
                }
                _ => {
                    client
                        .note(json!({"rights": {"number": n, "digest": "\u{7}"}}))
                        .await
                }
            };
            assert!(sent);
        }
        let about = json!({"about": {
            "version": "\u{1b}]0;x".repeat(4_000), "now_ns": i64::MIN, "sent_today": u64::MAX,
            "sent_this_month": u64::MAX, "rate": u64::MAX, "disk_bytes": u64::MAX,
            "written_bytes": u64::MAX, "heartbeat_seconds": u64::MAX,
        }});
        assert!(client.note(about).await);
        goes_on(&cloud, &mut honest, &mut rows).await;
        until("its report has come", || cloud.edge("h").about.is_some()).await;
        let about = cloud.edge("h").about.unwrap();
        assert!(about.version.len() <= 64 && !about.version.contains('\u{1b}'));
        // A path through this node, or through many, is refused.
        let own = format!("{:016x}", cloud.fleet.node());
        assert!(client.note(json!({"path": {"nodes": [own]}})).await);
        let (code, text) = client.refusal().await;
        assert!(
            code == "E_HISTORY" && text.contains("loop"),
            "{code}: {text}"
        );
        let nodes: Vec<String> = (0..1_000).map(|n| format!("{n:016x}")).collect();
        let mut client = Client::connect(&cloud, &key).await;
        assert!(client.note(json!({"path": {"nodes": nodes}})).await);
        let (code, text) = client.refusal().await;
        assert!(
            code == "E_HISTORY" && text.contains("at most 8"),
            "{code}: {text}"
        );
        goes_on(&cloud, &mut honest, &mut rows).await;
    });
}

#[test]
fn a_frame_that_declares_too_much_ends_the_connection_and_of_a_key_few_stay() {
    runtime().block_on(async {
        let (cloud, mut honest) = world().await;
        let mut rows = 5_000;
        let key = key(&cloud, "h").await;
        let addr = cloud.url.strip_prefix("http://").unwrap().to_owned();
        let head = format!(
            "GET /api/v1/sync/connect HTTP/1.1\r\nhost: {addr}\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nauthorization: Bearer {key}\r\n\r\n"
        );
        // Declared: 2^62 bytes, 65 MiB, a control frame that is too long, a frame without a mask.
        let mut ping = vec![0x89, 0xfe, 0x10, 0, 1, 2, 3, 4];
        ping.extend([0; 0x1000]);
        let frames: [&[u8]; 4] = [
            &[0x82, 0xff, 0x40, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4],
            &[0x82, 0xff, 0, 0, 0, 0, 0x04, 0x10, 0, 1, 1, 2, 3, 4],
            &ping,
            &[0x82, 0x05, 0, 1, 2, 3, 4],
        ];
        for frame in frames {
            let mut socket = TcpStream::connect(&addr).await.unwrap();
            socket.write_all(head.as_bytes()).await.unwrap();
            socket.write_all(frame).await.unwrap();
            let mut answered = Vec::new();
            let read = timeout(WITHIN, socket.read_to_end(&mut answered)).await;
            let why = format!("the connection is still there: {:?}", &frame[..7]);
            drop(read.expect(&why));
        }
        // A large frame that never ends, over many connections: all but the newest two end.
        let begun = [0x82, 0xff, 0, 0, 0, 0, 0x03, 0, 0, 0, 1, 2, 3, 4];
        let mut sockets = Vec::new();
        for _ in 0..12 {
            let mut socket = TcpStream::connect(&addr).await.unwrap();
            socket.write_all(head.as_bytes()).await.unwrap();
            let mut first = [0; 12];
            socket.read_exact(&mut first).await.unwrap();
            assert_eq!(&first, b"HTTP/1.1 101");
            // A note, so that it is served; then a part of the frame.
            let note = b"{\"verify\":{}}";
            let mut masked = vec![0x81, 0x80 | u8::try_from(note.len()).unwrap(), 0, 0, 0, 0];
            masked.extend(note);
            socket.write_all(&masked).await.unwrap();
            // The node may have ended it meanwhile.
            let _ = socket.write_all(&begun).await;
            let _ = socket.write_all(&[5; 10_000]).await;
            sockets.push(socket);
        }
        let newest = sockets.split_off(10);
        for mut socket in sockets {
            let mut answered = Vec::new();
            let read = timeout(WITHIN, socket.read_to_end(&mut answered)).await;
            drop(read.expect("an earlier connection is still there"));
        }
        drop(newest);
        goes_on(&cloud, &mut honest, &mut rows).await;
    });
}

#[test]
fn a_database_of_another_edge_or_another_than_announced_is_refused() {
    runtime().block_on(async {
        let (cloud, mut honest) = world().await;
        let mut rows = 5_000;
        let stolen = honest.db.hold_state(None).unwrap().state().clone();
        // Announced under another name.
        let first = key(&cloud, "h").await;
        let mut client = Client::connect(&cloud, &first).await;
        assert!(client.message(&Message::Hello(stolen.name())).await);
        let (code, text) = client.refusal().await;
        assert_eq!(code, "E_HISTORY", "{text}");
        assert!(
            text.contains("`honest`") && text.contains("--new-incarnation"),
            "{text}"
        );
        assert_eq!(cloud.edge("h").state, EdgeState::Refused);
        // Its own is announced, and the state is that of another edge.
        let second = key(&cloud, "i").await;
        let mut client = Client::connect(&cloud, &second).await;
        let mut source = Source::new();
        assert!(client.message(&Message::Hello(source.name())).await);
        let request = client.first_request().await;
        let bytes = stolen.encode();
        assert!(client.message(&Message::State { request, bytes }).await);
        let (code, text) = client.refusal().await;
        assert_eq!(code, "E_HISTORY", "{text}");
        assert_eq!(cloud.edge("i").copy, None);
        // A database of its own, announced as another one, is refused, too.
        let third = key(&cloud, "k").await;
        let mut client = Client::connect(&cloud, &third).await;
        let name = StateName {
            identity: 77,
            ..source.name()
        };
        assert!(client.message(&Message::Hello(name)).await);
        let request = client.first_request().await;
        let bytes = source.state().encode();
        assert!(client.message(&Message::State { request, bytes }).await);
        assert_eq!(client.refusal().await.0, "E_HISTORY");
        assert_eq!(cloud.edge("k").copy, None);
        goes_on(&cloud, &mut honest, &mut rows).await;
    });
}

#[test]
fn beginning_anew_again_and_again_leaves_a_bounded_number_of_parts() {
    runtime().block_on(async {
        let (cloud, mut honest) = world().await;
        let mut rows = 5_000;
        let key = key(&cloud, "h").await;
        let mut client = Client::connect(&cloud, &key).await;
        let mut source = Source::new();
        let mut refused = None;
        'anew: for _ in 0..80 {
            assert!(client.note(json!({"begin_anew": {}})).await);
            let name = source.name();
            assert!(client.message(&Message::Hello(name)).await);
            let bytes = source.state().encode();
            loop {
                match client.next().await {
                    Received::Message(Message::AskState {
                        request,
                        known_state: None,
                    }) => {
                        let bytes = bytes.clone();
                        assert!(client.message(&Message::State { request, bytes }).await);
                        break;
                    }
                    Received::Note(note) if !note["refused"].is_null() => {
                        refused = Some(note["refused"].clone());
                        break 'anew;
                    }
                    Received::End => panic!("the connection ended"),
                    _ => {}
                }
            }
        }
        let refused = refused.expect("it is refused at last");
        let text = refused["text"].as_str().unwrap();
        assert!(text.contains("edges parts remove"), "{refused}");
        let parts = cloud.fleet.parts();
        let closed = parts.iter().filter(|part| part.is_closed).count();
        assert!(closed <= 64, "{closed}");
        honest.write();
        rows += 5_000;
        let here = || cloud.edge("honest").state == EdgeState::Current;
        until("the honest edge goes on", here).await;
        until("its rows are here", || cloud.rows() == rows).await;
    });
}

/// Serves with real states, and bytes that a tamperer may change; returns when nothing more is
/// requested, or the connection ends.
async fn serve(client: &mut Client, source: &mut Source, tamper: &mut dyn FnMut(&mut Message)) {
    assert!(client.message(&Message::Hello(source.name())).await);
    let (mut quiet, mut answered) = (0, 0);
    // A cloud that gets nothing of use asks again, ever more slowly.
    while quiet < 2 && answered < 40 {
        let received = timeout(Duration::from_secs(1), client.0.next()).await;
        let Ok(frame) = received else {
            quiet += 1;
            continue;
        };
        let Some(Ok(Frame::Binary(bytes))) = frame else {
            if matches!(frame, Some(Ok(_))) {
                continue;
            }
            return;
        };
        let plain = match bytes[0] {
            0 => bytes[1..].to_vec(),
            _ => zstd::bulk::decompress(&bytes[1..], 64 << 20).unwrap(),
        };
        quiet = 0;
        let Ok(asked) = decode(&plain) else {
            continue;
        };
        for mut answer in source.answers(asked) {
            tamper(&mut answer);
            answered += 1;
            if !client.message(&answer).await {
                return;
            }
        }
    }
}

#[test]
fn lengths_places_and_bytes_that_are_wrong_harm_only_the_copy_of_their_edge() {
    runtime().block_on(async {
        let (cloud, mut honest) = world().await;
        let mut rows = 5_000;
        let chance: Arc<dyn Chance> = Arc::new(SeededChance::new(7));
        for round in 0..8 {
            let name = format!("h{round}");
            let key = key(&cloud, &name).await;
            let mut client = Client::connect(&cloud, &key).await;
            let mut source = Source::new();
            let chance = Arc::clone(&chance);
            let mut tamper = move |answer: &mut Message| {
                let dice = chance.next_u64();
                match answer {
                    Message::Bytes {
                        segment,
                        offset,
                        bytes,
                        ..
                    } => match round {
                        0 => *offset = offset.wrapping_add(dice >> 1),
                        1 => *segment = dice,
                        2 => bytes.truncate(bytes.len() / 2),
                        3 => bytes.extend(vec![9; 2 << 20]),
                        4 => {
                            let at = usize::try_from(dice).unwrap_or(0) % bytes.len().max(1);
                            if let Some(byte) = bytes.get_mut(at) {
                                *byte ^= 0x40;
                            }
                        }
                        5 => bytes.fill(0xff),
                        6 => *offset /= 2,
                        _ => {}
                    },
                    Message::State { bytes, .. } if round == 7 => {
                        let at = usize::try_from(dice).unwrap_or(0) % bytes.len();
                        bytes[at] ^= 1;
                    }
                    _ => {}
                }
            };
            serve(&mut client, &mut source, &mut tamper).await;
            assert!(client.message(&Message::Done { request: 1 }).await || round > 0);
            // Rows of the honest edge are all there, whatever there is of the other one.
            goes_on(&cloud, &mut honest, &mut rows).await;
            let stream = StreamName::new("m", [("id", "1")]);
            let found = cloud.snapshot().last(&stream).unwrap();
            assert!(!found.is_empty());
        }
    });
}

#[test]
fn rows_of_a_stream_of_another_edge_hide_none_of_its_rows() {
    runtime().block_on(async {
        let cloud = Cloud::start().await;
        let mut honest = Edge::start(&cloud.invite("honest")).await;
        honest.write();
        until("the honest edge is here", || cloud.rows() == 5_000).await;
        let mut hostile = Edge::start(&cloud.invite("h")).await;
        // The same stream and instants, with values of its own, and instants of its own.
        hostile.write_noise();
        hostile.write_noise();
        until("its rows are here, beside the others", || {
            cloud.rows() == 10_000
        })
        .await;
        let stream = StreamName::new("m", [("id", "1")]);
        let own = honest.db.snapshot().unwrap();
        let spec = AggregateSpec {
            range: ClosedRange::nanos(0, 1_700_005_000 * 1_000_000_000),
            bins: Bins::Whole,
            first_last: true,
        };
        let read = |snapshot: &Snapshot| {
            let bins = snapshot.aggregate(&stream, "v", &spec).unwrap();
            let found = &bins[0].aggregate;
            // The last bits of a mean depend on the order in which rows are added.
            let mean = format!("{:.6}", found.mean().unwrap());
            (found.count, format!("{:?}", found.extremes), mean)
        };
        // Its values at these instants are other ones.
        assert_ne!(read(&hostile.db.snapshot().unwrap()), read(&own));
        until("the rows of the first one are shown", || {
            read(&cloud.snapshot()) == read(&own)
        })
        .await;
        assert_eq!(cloud.rows(), 10_000);
    });
}
