//! A hostile cloud, which an edge has joined: whatever it requests or says, the edge sends nothing
//! but what it has granted, frees nothing that was not sent, and goes on.

use crate::nodes::{Cloud, settings, until};
use futures_util::{SinkExt, StreamExt};
use headwater_cluster::{
    FreeStatus, FreedStatus, MadeRoom, RightsReceiver, UPLINK_FILE, Uplink, UplinkSettings,
    UplinkState, accept_key, join, withholding,
};
use headwater_engine::{Database, Options, ScanSpec, State, StateName};
use headwater_io::Env;
use headwater_protocol::replication::{
    Digest, Message, Nonce, SegmentRange, challenge_digest, decode, encode,
};
use headwater_shell::access::rights::keys::RightsKeys;
use headwater_shell::access::rights::received::{RIGHTS_FILE, ReceivedFile};
use headwater_shell::access::tokens::{NewToken, TokenFile};
use headwater_types::{Batch, StreamName, Value};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::protocol::Role;

/// Far longer than an answer takes.
const WITHIN: Duration = Duration::from_secs(60);
/// More than the interval at which an edge frees rows.
pub(crate) const A_LOOK: Duration = Duration::from_secs(12);
/// Rows of one [`World::write`].
pub(crate) const ROWS: i64 = 5_000;

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// An edge that frees rows as soon as it may, withholds a table, and takes lists of rights.
pub(crate) struct World {
    db: Database,
    pub(crate) uplink: Arc<Uplink>,
    dir: TempDir,
    listener: TcpListener,
    written: i64,
    _stop: watch::Sender<bool>,
}

impl World {
    async fn start() -> World {
        World::start_after(|_| {}).await
    }

    /// One whose database has something before the edge starts.
    pub(crate) async fn start_after(before: impl FnOnce(&mut World)) -> World {
        let cloud = Cloud::start().await;
        let dir = tempfile::tempdir().unwrap();
        join(dir.path(), &cloud.invite("e"), None, None, false)
            .await
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        // The cloud that it finds from here on.
        let path = dir.path().join(UPLINK_FILE);
        let mut file: Json = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        file["url"] = format!("http://{}", listener.local_addr().unwrap()).into();
        file["rights_key"] = "07".repeat(32).into();
        std::fs::write(&path, file.to_string()).unwrap();
        let db = Database::open_in(Env::system(), Options::new(dir.path())).unwrap();
        let receiver = RightsReceiver::new(ReceivedFile::of_database(dir.path()));
        let settings = UplinkSettings {
            free_after: Some(Duration::ZERO),
            rules: withholding(&["secret".to_owned()]).unwrap(),
            rights: Some(receiver),
            ..settings()
        };
        let uplink = Uplink::new(db.clone(), Env::system(), dir.path(), settings).unwrap();
        let uplink = Arc::new(uplink);
        let (stop, stopping) = watch::channel(false);
        let mut world = World {
            db,
            uplink,
            dir,
            listener,
            written: 1_700_000_000,
            _stop: stop,
        };
        before(&mut world);
        tokio::spawn(Arc::clone(&world.uplink).run(stopping));
        world
    }

    /// Writes and stores rows of a table that is sent, and of one that is withheld.
    pub(crate) fn write(&mut self) {
        let mut batch = Batch::new();
        for table in ["m", "secret"] {
            let stream = StreamName::new(table, [("id", "1")]);
            let rows = batch.stream(&stream);
            for n in 1..=ROWS {
                let at = (self.written + n) * 1_000_000_000;
                let value = (at / 7_000_000).wrapping_mul(0x9e37_79b9) % 10_007;
                rows.row(at, [("v", Value::F64(value as f64))]).unwrap();
            }
        }
        self.written += ROWS;
        self.db.commit(batch).unwrap();
        self.db.flush().unwrap();
    }

    pub(crate) async fn accept(&self) -> Hostile {
        self.accept_with(true).await
    }

    /// A cloud that says that it answers challenges, or one of an earlier version.
    pub(crate) async fn accept_with(&self, answers_challenges: bool) -> Hostile {
        let accepted = timeout(WITHIN, self.listener.accept()).await.unwrap();
        let mut stream = accepted.unwrap().0;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        let key = head.lines().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case("sec-websocket-key")
                .then_some(value)
        });
        let accept = accept_key(key.unwrap());
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: {accept}\r\n\r\n"
        );
        stream.write_all(answer.as_bytes()).await.unwrap();
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
        let mut hostile = Hostile {
            socket,
            bytes: BTreeMap::new(),
            challenge: None,
        };
        let welcome = match answers_challenges {
            true => {
                json!({"welcome": {"edge": "e", "now_ns": i64::MAX, "is_patient": true, "answers_challenges": true}})
            }
            false => json!({"welcome": {"edge": "e", "now_ns": i64::MAX, "is_patient": true}}),
        };
        hostile.note(&welcome).await;
        until("it is connected", || {
            self.uplink.status().unwrap().state == UplinkState::Connected
        })
        .await;
        hostile
    }

    /// Rows of the table that is withheld, as they are read.
    pub(crate) fn secret_rows(&self) -> i64 {
        let stream = StreamName::new("secret", [("id", "1")]);
        let own = self.db.snapshot().unwrap();
        let scan = own.scan(&stream, &ScanSpec::default()).unwrap();
        let rows = scan.map(|chunk| chunk.unwrap().times.len()).sum::<usize>();
        i64::try_from(rows).unwrap()
    }

    pub(crate) fn freed(&self) -> u64 {
        self.freeing().partitions
    }

    pub(crate) fn freeing(&self) -> FreedStatus {
        self.uplink.status().unwrap().freed.unwrap()
    }
}

/// A challenge: its number, nonce and ranges.
type Challenge = (u64, Nonce, Vec<SegmentRange>);

pub(crate) struct Hostile {
    socket: WebSocketStream<TcpStream>,
    /// The bytes of segments that it was sent, from the start of each.
    bytes: BTreeMap<u64, Vec<u8>>,
    /// The last challenge.
    challenge: Option<Challenge>,
}

impl Hostile {
    async fn frame(&mut self, frame: Frame) {
        timeout(WITHIN, self.socket.send(frame))
            .await
            .unwrap()
            .unwrap();
    }

    async fn note(&mut self, note: &Json) {
        self.frame(Frame::text(note.to_string())).await;
    }

    async fn message(&mut self, message: &Message) {
        let mut bytes = vec![0];
        bytes.extend(encode(message));
        self.frame(Frame::binary(bytes)).await;
    }

    async fn next(&mut self) -> Option<Message> {
        let frame = timeout(WITHIN, self.socket.next()).await.unwrap();
        self.read(frame.unwrap().unwrap())
    }

    fn read(&mut self, frame: Frame) -> Option<Message> {
        let Frame::Binary(bytes) = frame else {
            return None;
        };
        let (kind, bytes) = bytes.split_first().unwrap();
        let plain = match kind {
            0 => bytes.to_vec(),
            _ => zstd::bulk::decompress(bytes, 64 << 20).unwrap(),
        };
        let message = decode(&plain).unwrap();
        match &message {
            Message::Challenge {
                request,
                nonce,
                ranges,
            } => self.challenge = Some((*request, *nonce, ranges.clone())),
            Message::Bytes {
                segment,
                offset,
                bytes,
                ..
            } => {
                let known = self.bytes.entry(*segment).or_default();
                known.truncate(usize::try_from(*offset).unwrap());
                known.extend(bytes);
            }
            _ => {}
        }
        Some(message)
    }

    /// Reads until something is so; true if that was a challenge.
    async fn challenged_or(&mut self, mut is_so: impl FnMut() -> bool) -> bool {
        let end = tokio::time::Instant::now() + 2 * WITHIN;
        while self.challenge.is_none() && !is_so() {
            assert!(tokio::time::Instant::now() < end, "no challenge");
            let next = timeout(Duration::from_millis(100), self.socket.next()).await;
            if let Ok(frame) = next {
                self.read(frame.unwrap().unwrap());
            }
        }
        self.challenge.is_some()
    }

    /// Waits for a challenge, and answers it with a digest made of each range.
    pub(crate) async fn answer_challenge(
        &mut self,
        digest: impl Fn(&Nonce, &SegmentRange, &[u8]) -> Digest,
    ) {
        assert!(self.challenged_or(|| false).await);
        let (request, nonce, ranges) = self.challenge.take().unwrap();
        let digests = ranges.iter().map(|range| {
            let known = self.bytes.get(&range.segment);
            let at = usize::try_from(range.offset).unwrap();
            let bytes = known.and_then(|known| known.get(at..at + range.bytes as usize));
            digest(&nonce, range, bytes.unwrap_or_default())
        });
        let digests = digests.collect();
        self.message(&Message::ChallengeAnswer { request, digests })
            .await;
    }

    /// Answers challenges truthfully until something is so.
    pub(crate) async fn answer_until(&mut self, mut is_so: impl FnMut() -> bool) {
        while self.challenged_or(&mut is_so).await {
            self.answer_challenge(challenge_digest).await;
        }
    }

    /// Confirms everything that a state names, with the chains that stand in it.
    pub(crate) async fn confirm_all(&mut self, state: &State) {
        self.note(&json!({"survives": {"at": "bucket"}})).await;
        let segments: Vec<(u64, u64)> = state.segments().map(|s| (s.id, s.bytes)).collect();
        let head = |(id, _): &(u64, u64)| (*id, state.ledger(*id).unwrap().head);
        let confirmed = Message::Confirm {
            state: state.name(),
            proofs: segments.iter().map(head).collect(),
            segments,
        };
        self.message(&confirmed).await;
    }

    /// The answers to a request, up to the last.
    async fn answers(&mut self, asked: &Message, request: u64) -> Vec<Message> {
        self.message(asked).await;
        let mut all = Vec::new();
        loop {
            let found = self.next().await;
            let (of, is_last) = match &found {
                Some(Message::Done { request }) => (*request, true),
                Some(Message::Wait { request, .. }) => (*request, true),
                Some(Message::Unavailable { request }) => (*request, true),
                Some(Message::Refused { request, .. }) => (*request, true),
                Some(Message::State { request, .. }) => (*request, false),
                Some(Message::Bytes { request, .. }) => (*request, false),
                Some(Message::Digests { request, .. }) => (*request, false),
                _ => continue,
            };
            if of == request {
                all.extend(found);
                if is_last {
                    return all;
                }
            }
        }
    }

    /// The newest state.
    pub(crate) async fn state(&mut self) -> State {
        for request in 1_000.. {
            let asked = Message::AskState {
                request,
                known_state: None,
            };
            for answer in self.answers(&asked, request).await {
                match answer {
                    Message::State { bytes, .. } => return State::decode(&bytes, None).unwrap(),
                    Message::Wait { millis, .. } => {
                        tokio::time::sleep(Duration::from_millis(millis)).await;
                    }
                    _ => {}
                }
            }
        }
        unreachable!("the requests end with an answer")
    }

    /// Fetches a whole segment.
    pub(crate) async fn fetch_all(&mut self, state: StateName, segment: u64, bytes: u64) {
        let mut at = 0;
        while at < bytes {
            let more = u32::try_from(bytes - at).unwrap_or(u32::MAX).min(64 << 10);
            let found = self.fetch(state, vec![range(segment, at, more)]).await;
            let sent = found.unwrap().into_iter().map(|r| u64::from(r.bytes));
            at += sent.sum::<u64>();
        }
    }

    /// Fetches ranges; the bytes, or the code of the refusal.
    async fn fetch(
        &mut self,
        state: StateName,
        ranges: Vec<SegmentRange>,
    ) -> Result<Vec<SegmentRange>, String> {
        let request = 77;
        let asked = Message::Fetch {
            request,
            state,
            ranges,
        };
        let mut found = Vec::new();
        for answer in self.answers(&asked, request).await {
            match answer {
                Message::Bytes {
                    segment,
                    offset,
                    bytes,
                    ..
                } => found.push(SegmentRange {
                    segment,
                    offset,
                    bytes: u32::try_from(bytes.len()).unwrap(),
                }),
                Message::Refused { code, .. } => return Err(code),
                Message::Unavailable { .. } => return Err("unavailable".to_owned()),
                _ => {}
            }
        }
        Ok(found)
    }
}

fn range(segment: u64, offset: u64, bytes: u32) -> SegmentRange {
    SegmentRange {
        segment,
        offset,
        bytes,
    }
}

/// A state of another history is refused, and so is a range of it.
async fn refuses_other_history(cloud: &mut Hostile, name: StateName, segment: u64) {
    let known = StateName {
        incarnation: name.incarnation ^ 1,
        ..name
    };
    let asked = Message::AskState {
        request: 5,
        known_state: Some(known),
    };
    let answers = loop {
        let answers = cloud.answers(&asked, 5).await;
        if !matches!(answers[..], [Message::Wait { .. }]) {
            break answers;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(
        matches!(&answers[..], [Message::Refused { code, .. }] if code == "history"),
        "{answers:?}"
    );
    let refused = cloud.fetch(known, vec![range(segment, 0, 64)]).await;
    assert_eq!(refused, Err("unavailable".to_owned()));
}

#[test]
fn requests_for_what_is_not_granted_are_refused_and_the_edge_goes_on() {
    runtime().block_on(async {
        let mut world = World::start().await;
        world.write();
        let mut cloud = world.accept().await;
        let state = cloud.state().await;
        assert!(!format!("{state:?}").contains("secret"), "it is withheld");
        let name = state.name();
        let granted: Vec<(u64, u64)> = state.segments().map(|s| (s.id, s.bytes)).collect();
        let (segment, bytes) = granted[0];
        let whole = u32::try_from(bytes).unwrap().min(1 << 20);
        assert!(
            !cloud
                .fetch(name, vec![range(segment, 0, whole)])
                .await
                .unwrap()
                .is_empty()
        );
        for asked in [
            range(segment, bytes, 1),
            range(segment, 0, u32::MAX),
            range(segment, u64::MAX, 1),
            range(segment, u64::MAX - 5, 100),
            range(u64::MAX, 0, 1),
        ] {
            let refused = cloud.fetch(name, vec![asked]).await;
            assert_eq!(refused, Err("piece".to_owned()), "{asked:?}");
        }
        // Segments that the state does not name are those of the withheld table, or none.
        for other in 0..64 {
            if granted.iter().all(|(id, _)| *id != other) {
                let refused = cloud.fetch(name, vec![range(other, 0, 64)]).await;
                assert_eq!(refused, Err("piece".to_owned()), "{other}");
            }
        }
        // Of very many ranges as many are answered as one answer has.
        let many = vec![range(segment, 0, whole.min(4_096)); 60_000];
        let found = cloud.fetch(name, many).await.unwrap();
        let sent: u64 = found.iter().map(|r| u64::from(r.bytes)).sum();
        assert!(!found.is_empty() && sent <= 17 << 20, "{sent}");
        refuses_other_history(&mut cloud, name, segment).await;
        // Each of many requests has an answer, or is told to wait.
        for request in 0..200 {
            let asked = Message::AskState {
                request,
                known_state: None,
            };
            let answers = cloud.answers(&asked, request).await;
            let last = answers.last();
            let is_answered = matches!(last, Some(Message::Done { .. } | Message::Wait { .. }));
            assert!(is_answered, "{last:?}");
        }
        world.write();
        let newer = loop {
            match cloud.next().await {
                Some(Message::Hello(newer)) if newer.number > name.number => break newer,
                _ => {}
            }
        };
        assert_eq!(newer.identity, name.identity);
        assert_eq!(world.uplink.status().unwrap().state, UplinkState::Connected);
    });
}

#[test]
fn confirmations_of_what_was_never_sent_free_no_rows() {
    runtime().block_on(async {
        let mut world = World::start().await;
        let mut cloud = world.accept().await;
        world.write();
        cloud.note(&json!({"survives": {"at": "bucket"}})).await;
        let state = cloud.state().await;
        let name = state.name();
        let segments: Vec<(u64, u64)> = state.segments().map(|s| (s.id, s.bytes)).collect();
        let heads: Vec<(u64, [u8; 32])> = segments
            .iter()
            .map(|(id, _)| (*id, state.ledger(*id).unwrap().head))
            .collect();
        let other = StateName {
            identity: name.identity ^ 1,
            ..name
        };
        let later = StateName {
            number: name.number + 1_000,
            ..name
        };
        let everything: Vec<(u64, u64)> = (0..64).map(|id| (id, u64::MAX)).collect();
        let wrong: Vec<(u64, [u8; 32])> = (0..64).map(|id| (id, [7; 32])).collect();
        // Of another database, a state that there never was, wrong lengths, wrong hashes; at last
        // all as the state has it, of which the edge has sent nothing.
        for (state, segments, proofs) in [
            (other, &segments, &heads),
            (later, &segments, &heads),
            (name, &everything, &heads),
            (name, &segments, &wrong),
            (name, &segments, &heads),
        ] {
            let confirmed = Message::Confirm {
                state,
                segments: segments.clone(),
                proofs: proofs.clone(),
            };
            cloud.message(&confirmed).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        until("a confirmation was read", || {
            world.uplink.status().unwrap().confirmed_number == Some(name.number)
        })
        .await;
        tokio::time::sleep(A_LOOK).await;
        assert_eq!(world.freed(), 0);
        assert_eq!(world.uplink.make_room().unwrap(), MadeRoom::default());
        let challenges = world.freeing().challenges;
        assert_eq!(challenges.sent, 0, "nothing that may be freed");
        // What was sent, and is confirmed, is freed.
        for (segment, bytes) in &segments {
            cloud.fetch_all(name, *segment, *bytes).await;
        }
        let confirmed = Message::Confirm {
            state: name,
            segments,
            proofs: heads,
        };
        cloud.message(&confirmed).await;
        cloud.answer_until(|| world.freed() > 0).await;
        assert_eq!(world.freeing().state, FreeStatus::Confirmed);
        assert_eq!(world.secret_rows(), ROWS, "what is withheld stays");
    });
}

/// A list of rights that another cloud has signed.
fn foreign_list() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let tokens = TokenFile::of_database(dir.path());
    let token = NewToken {
        name: "intruder".to_owned(),
        rules: vec!["manage *".parse().unwrap()],
        expires: None,
    };
    tokens.create(token).unwrap();
    let keys = RightsKeys::open(dir.path(), 7).unwrap();
    keys.sign(&tokens.read().unwrap().unwrap(), tokens.now())
        .unwrap()
}

#[test]
fn notes_and_lists_that_are_false_change_nothing() {
    runtime().block_on(async {
        let world = World::start().await;
        let mut cloud = world.accept().await;
        let uplink = std::fs::read(world.dir.path().join(UPLINK_FILE)).unwrap();
        // A list that another cloud has signed; and frames that are no list.
        let list = foreign_list();
        let mut damaged = list.clone();
        *damaged.last_mut().unwrap() ^= 1;
        for list in [
            list,
            damaged,
            vec![0; 900 << 10],
            vec![0; 2 << 20],
            Vec::new(),
        ] {
            let mut frame = vec![2];
            frame.extend(zstd::bulk::compress(&list, 3).unwrap());
            cloud.frame(Frame::binary(frame)).await;
        }
        for note in [
            json!({"revoked": {"list": "x".repeat(60_000)}}),
            json!({"revoked": {"list": "7:7,-1:::,\u{1b}[2J"}}),
            json!({"verified": {"equal": u64::MAX, "different": 0, "missing": 0}}),
            json!({"successor": {"key": "hwe_00"}}),
            json!({"key": {"key": "hwe_00"}}),
            json!({"warning": {"text": "\u{1b}]0;x".repeat(5_000)}}),
            json!({"about": {"version": "x"}}),
            json!({"begin_anew": {}}),
            json!({"path": {"nodes": ["1"]}}),
            json!({"closed": {"is_succeeded": true}}),
        ] {
            cloud.note(&note).await;
        }
        // Messages that only a source sends, and large ones that are not unpacked.
        cloud.message(&Message::Done { request: 1 }).await;
        let bytes = vec![0; 1 << 20];
        cloud.message(&Message::State { request: 1, bytes }).await;
        let mut bomb = vec![1];
        bomb.extend(zstd::bulk::compress(&vec![0; 200 << 20], 1).unwrap());
        cloud.frame(Frame::binary(bomb)).await;
        until("the warning is told, in words that can be printed", || {
            let error = world.uplink.status().unwrap().error.unwrap_or_default();
            error.len() <= 1024 && error.starts_with("?]0;x")
        })
        .await;
        // It answers as before.
        drop(cloud.state().await);
        let status = world.uplink.status().unwrap();
        assert_eq!(status.state, UplinkState::Connected);
        assert!(!world.dir.path().join(RIGHTS_FILE).exists());
        let now = std::fs::read(world.dir.path().join(UPLINK_FILE)).unwrap();
        assert_eq!(now, uplink);
        // A key that is none ends the connection, and the key before stays.
        cloud.note(&json!({"new_key": {"key": "nothing"}})).await;
        until("it has come again", || {
            world.uplink.status().unwrap().state != UplinkState::Connected
        })
        .await;
        let now = std::fs::read(world.dir.path().join(UPLINK_FILE)).unwrap();
        assert_eq!(now, uplink);
        drop(world.accept().await);
    });
}
