//! What clients that mean well get from a server.

use crate::client::{
    Client, DISCONNECT, FLUSH, FUA, READ, Response, STATUS, TRIM, WRITE, ZEROES, connect, greet,
    named, option_replies, option_reply, send_option,
};
use crate::support::{BLOCK, env_with_threads, open, read, small};
use headwater_block::{Address, Device, DeviceOptions, ServeOptions, Server};
use headwater_io::{Env, FaultKind, FaultyFiles, Files, MemoryFiles, NoThreads};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A server in this process, over whatever files.
pub(crate) struct Running {
    dir: tempfile::TempDir,
    pub(crate) server: Option<Server>,
}

impl Running {
    pub(crate) fn start(files: impl Files + 'static) -> Running {
        Running::start_with(files, |_| {})
    }

    pub(crate) fn start_with(
        files: impl Files + 'static,
        change: impl FnOnce(&mut ServeOptions),
    ) -> Running {
        let dir = tempfile::tempdir().unwrap();
        let env = env_with_threads(files);
        let device = Arc::new(Device::open(&env, &small()).unwrap());
        let mut options = ServeOptions::new(Address::Unix(dir.path().join("nbd.sock")));
        change(&mut options);
        let server = Server::start(&env, device, options).unwrap();
        Running {
            dir,
            server: Some(server),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("nbd.sock")
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.path(), true)
    }

    pub(crate) fn stop(mut self) {
        self.server.take().unwrap().stop().unwrap();
    }

    /// Waits until so many connections are open.
    pub(crate) fn wait_for_connections(&self, count: usize) {
        while self.server.as_ref().unwrap().connections() != count {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_client_reads_what_it_wrote_with_and_without_structured_replies() {
    for structured in [true, false] {
        let running = Running::start(MemoryFiles::new());
        let mut client = Client::new(&running.path(), structured);
        assert_eq!(client.size, 32 * BLOCK);
        client.write(100, &[7; 9000]);
        client.flush();
        assert_eq!(client.read(99, 3), [0, 7, 7]);
        let told = client.call(TRIM, 0, BLOCK, 4096, b"");
        assert_eq!(told, Response::Done);
        assert_eq!(client.read(BLOCK, 1), [0]);
        let told = client.call(ZEROES, FUA, 0, 4096, b"");
        assert_eq!(told, Response::Done);
        assert_eq!(client.read(0, 200), [0; 200]);
        let told = client.call(STATUS, 0, 0, 4 * 4096, b"");
        match structured {
            true => assert_eq!(
                told,
                Response::Extents(vec![(8192, 3), (4096, 0), (4096, 3)])
            ),
            false => assert_eq!(told, Response::Failed(22)),
        }
        client.send(DISCONNECT, 0, 0, 0, b"").unwrap();
        let mut rest = Vec::new();
        client.stream.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty());
        running.stop();
    }
}

#[test]
fn everything_that_works_is_advertised_and_nothing_else() {
    let running = Running::start(MemoryFiles::new());
    // Flags, flush, FUA, trim, zeros, several connections, fast zeros.
    let without = Client::new(&running.path(), false).flags;
    assert_eq!(without, 1 | 4 | 8 | 32 | 64 | 256 | 2048);
    assert_eq!(running.client().flags, without | 128);
    running.stop();
}

#[test]
fn options_are_answered_as_the_protocol_says() {
    let running = Running::start(MemoryFiles::new());
    let stream = &mut connect(&running.path());
    greet(stream).unwrap();
    assert_eq!(
        option_replies(stream, 3, b""),
        [(2, named("headwater", b"")), (1, vec![])]
    );
    let error = |told: &[(u32, Vec<u8>)]| told[0].0.wrapping_sub(1 << 31);
    assert_eq!(error(&option_replies(stream, 3, b"x")), 3, "LIST with data");
    assert_eq!(
        error(&option_replies(stream, 5, b"")),
        1,
        "STARTTLS is not there"
    );
    assert_eq!(
        error(&option_replies(stream, 11, b"")),
        1,
        "nor longer headers"
    );
    assert_eq!(error(&option_replies(stream, 99, b"abc")), 1);
    assert_eq!(
        error(&option_replies(stream, 6, &named("other", b"\0\0"))),
        6
    );
    assert_eq!(error(&option_replies(stream, 6, b"\0\0\0\xffx")), 3);
    let contexts = named("", b"\0\0\0\0");
    assert_eq!(
        error(&option_replies(stream, 9, &contexts)),
        3,
        "not yet structured"
    );
    assert_eq!(error(&option_replies(stream, 8, b"x")), 3);
    assert_eq!(option_replies(stream, 8, b""), [(1, vec![])]);
    assert_eq!(
        option_replies(stream, 9, &contexts),
        [(4, b"\0\0\0\0base:allocation".to_vec()), (1, vec![])]
    );
    let unknown = [&1_u32.to_be_bytes()[..], &named("qemu:dirty-bitmap:x", b"")].concat();
    assert_eq!(
        option_replies(stream, 10, &named("", &unknown)),
        [(1, vec![])]
    );
    let told = option_replies(stream, 6, &named("headwater", b"\0\x03\0\x03\0\x01\0\x63"));
    let kinds: Vec<u8> = told.iter().filter(|t| t.0 == 3).map(|t| t.1[1]).collect();
    assert_eq!(kinds, [0, 3, 1], "each once, what is unknown not at all");
    assert_eq!(
        told[1].1, b"\0\x03\0\0\0\x01\0\0\x10\0\x02\0\0\0",
        "any place, best 4 KiB, at most 32 MiB"
    );
    assert_eq!(option_replies(stream, 2, b""), [(1, vec![])]);
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "it was the end");
    running.stop();
}

#[test]
fn old_clients_name_an_export_and_begin() {
    let running = Running::start(MemoryFiles::new());
    for (name, flags, bytes) in [("headwater", 3_u32, 10), ("", 1, 134), ("", 0, 134)] {
        let stream = &mut connect(&running.path());
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        stream.write_all(&flags.to_be_bytes()).unwrap();
        send_option(stream, 1, name.as_bytes()).unwrap();
        let mut told = vec![0; bytes];
        stream.read_exact(&mut told).unwrap();
        assert_eq!(told[..8], (32 * BLOCK).to_be_bytes());
        assert!(told[10..].iter().all(|byte| *byte == 0));
    }
    let stream = &mut connect(&running.path());
    greet(stream).unwrap();
    send_option(stream, 1, b"other").unwrap();
    assert_eq!(
        stream.read(&mut [0; 1]).unwrap(),
        0,
        "there is no way to say no"
    );
    running.stop();
}

#[test]
fn tcp_serves_as_well() {
    let env = env_with_threads(MemoryFiles::new());
    let device = Arc::new(Device::open(&env, &small()).unwrap());
    let options = ServeOptions::new("tcp:127.0.0.1:0".parse().unwrap());
    let server = Server::start(&env, device, options).unwrap();
    let Address::Tcp(address) = *server.address() else {
        panic!("{:?}", server.address());
    };
    assert_ne!(address.port(), 0);
    let mut stream = TcpStream::connect(address).unwrap();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    assert!(greeting.starts_with(b"NBDMAGIC"));
    server.stop().unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.is_empty());
}

/// The promise behind offering several connections: one writes, another flushes, the power fails.
#[test]
fn a_flush_covers_what_other_connections_wrote() {
    let disk = FaultyFiles::new(5);
    let running = Running::start(disk.clone());
    let mut writers: Vec<Client> = (0..4).map(|_| running.client()).collect();
    for round in 1..20_u8 {
        for (n, writer) in (0..).zip(&mut writers) {
            // Both sets, every time.
            writer.write(n * 4 * BLOCK, &[round; 3 * 4096]);
        }
        running.client().flush();
        let after = disk.after_crash(u64::from(round) % 3 * u64::from(round));
        let device = open(&after);
        for n in 0..4 {
            assert_eq!(read(&device, n * 4 * BLOCK, 3 * BLOCK), [round; 3 * 4096]);
        }
    }
    running.stop();
}

#[test]
fn a_write_with_fua_is_durable_when_it_is_answered_and_alone() {
    let disk = FaultyFiles::new(5);
    let running = Running::start(disk.clone());
    let (mut a, mut b) = (running.client(), running.client());
    a.write(0, &[1; 4096]);
    let told = b.call(WRITE, FUA, 8192, 8192, &[2; 8192]);
    assert_eq!(told, Response::Done);
    disk.crash_now();
    let device = open(&disk.after_crash(0));
    assert_eq!(read(&device, 0, BLOCK), [0; 4096], "nobody flushed it");
    assert_eq!(read(&device, 8192, 8192), [2; 8192]);
}

#[test]
fn requests_are_taken_while_others_are_on_their_way() {
    let running = Running::start(MemoryFiles::new());
    let mut client = running.client();
    let mut reads = BTreeMap::new();
    let mut expected = BTreeMap::new();
    for n in 0..200_u64 {
        let offset = n % 32 * BLOCK;
        if n % 3 == 0 {
            let cookie = client.send(WRITE, 0, offset, 4096, &[9; 4096]).unwrap();
            expected.insert(cookie, false);
        } else {
            let cookie = client.send(READ, 0, offset, 4096, b"").unwrap();
            reads.insert(cookie, 4096);
            expected.insert(cookie, true);
        }
    }
    while !expected.is_empty() {
        let (cookie, told) = client.reply(&reads).unwrap();
        match expected.remove(&cookie).expect("each is answered once") {
            true => assert!(told.data().iter().all(|byte| [0, 9].contains(byte))),
            false => assert_eq!(told, Response::Done),
        }
    }
    running.stop();
}

#[test]
fn errors_of_the_medium_reach_the_client_and_the_connection_goes_on() {
    let disk = FaultyFiles::new(5);
    let running = Running::start(disk.clone());
    let mut client = running.client();
    client.write(0, &[1; 4096]);
    disk.capacity(0);
    // A slot that has its space takes the block; filling the medium is for the first write only.
    client.flush();
    disk.capacity(u64::MAX);
    client.write(0, &[2; 4096]);
    disk.fail_next(FaultKind::SyncError, 0);
    assert_eq!(client.call(FLUSH, 0, 0, 0, b""), Response::Failed(5));
    assert_eq!(client.call(FLUSH, 0, 0, 0, b""), Response::Failed(5));
    assert_eq!(client.read(0, 1), [2]);
    let stopped = running.server.as_ref().unwrap().connections();
    assert_eq!(stopped, 1);
}

#[test]
fn stopping_answers_what_was_taken_and_makes_everything_durable() {
    let disk = FaultyFiles::new(5);
    let running = Running::start(disk.clone());
    let mut client = running.client();
    let mut expected = Vec::new();
    for n in 0..32_u64 {
        expected.push(client.send(WRITE, 0, n * BLOCK, 4096, &[8; 4096]).unwrap());
    }
    // All of them were taken when the last was answered.
    let mut answered = 0;
    while answered < 32 {
        assert_eq!(client.reply(&BTreeMap::new()).unwrap().1, Response::Done);
        answered += 1;
    }
    let path = running.path();
    running.stop();
    assert_eq!(client.stream.read(&mut [0; 1]).unwrap(), 0);
    assert!(!path.exists(), "the socket is gone");
    disk.crash_now();
    let device = open(&disk.after_crash(0));
    assert_eq!(read(&device, 0, 32 * BLOCK), vec![8; 32 * 4096]);
}

#[test]
fn two_servers_cannot_listen_at_one_address_nor_serve_without_threads() {
    let running = Running::start(MemoryFiles::new());
    let env = env_with_threads(MemoryFiles::new());
    let device = Arc::new(Device::open(&env, &small()).unwrap());
    let options = ServeOptions::new(Address::Unix(running.path()));
    let error = Server::start(&env, Arc::clone(&device), options).unwrap_err();
    assert!(error.to_string().contains("nbd.sock"), "{error}");
    let none = Env {
        threads: Arc::new(NoThreads),
        ..env
    };
    let other = tempfile::tempdir().unwrap();
    let options = ServeOptions::new(Address::Unix(other.path().join("a")));
    let error = Server::start(&none, device, options).unwrap_err();
    assert_eq!(error.kind().as_str(), "invalid");
    running.client().write(0, b"still there");
    running.stop();
    assert_eq!(DeviceOptions::new("/x").size, None);
    // A negotiation that is under way is told that it is the end.
    let running = Running::start(MemoryFiles::new());
    let stream = &mut connect(&running.path());
    greet(stream).unwrap();
    running.wait_for_connections(1);
    running.stop();
    let _ = send_option(stream, 3, b"");
    assert!(option_reply(stream).is_err());
}
