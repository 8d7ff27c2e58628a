//! The store of S3's protocol against a server of it, versitygw, where that is installed: in the
//! path, or where `VERSITYGW` says. `make bucket-test` installs it.

use crate::race::{RACERS, race};
use crate::stores::laws;
use headwater_bucket::{
    BucketErrorKind, Credentials, Holder, Me, Now, ObjectStore, S3, S3Place, carry_out, read_head,
};
use headwater_io::{Clock, SystemChance, SystemClock};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

const KEY: &str = "testkey";
const SECRET: &str = "testsecret12";

/// A server, until it is dropped.
struct Gateway {
    child: Child,
    endpoint: String,
    _dir: tempfile::TempDir,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn program() -> Option<PathBuf> {
    if let Some(said) = std::env::var_os("VERSITYGW") {
        return Some(PathBuf::from(said));
    }
    let path = std::env::var_os("PATH")?;
    let mut all = std::env::split_paths(&path).map(|folder| folder.join("versitygw"));
    all.find(|program| program.is_file())
}

impl Gateway {
    /// One with a bucket `plants`; `None` where it is not installed, which is said.
    fn start() -> Option<Gateway> {
        let Some(program) = program() else {
            eprintln!("versitygw is not installed: nothing was tested; `make bucket-test` does");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("plants")).unwrap();
        // The port is free when this ends, and somebody else may take it: then the start fails.
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let child = Command::new(program)
            .args(["--port", &port.to_string(), "posix"])
            .arg(dir.path())
            .env("ROOT_ACCESS_KEY", KEY)
            .env("ROOT_SECRET_KEY", SECRET)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut gateway = Gateway {
            child,
            endpoint: format!("http://{port}"),
            _dir: dir,
        };
        let store = gateway.store("plants", SECRET);
        while store.get("nothing").is_err() {
            assert_eq!(gateway.child.try_wait().unwrap(), None, "versitygw ended");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Some(gateway)
    }

    fn store(&self, bucket: &str, secret: &str) -> S3 {
        let place = S3Place {
            endpoint: self.endpoint.clone(),
            region: "us-east-1".to_owned(),
            bucket: bucket.to_owned(),
            prefix: "north/".to_owned(),
            is_path_style: true,
        };
        let credentials = Credentials {
            key: KEY.to_owned(),
            secret: secret.to_owned(),
            token: None,
        };
        S3::new(&place, &credentials, Arc::new(SystemClock::new())).unwrap()
    }
}

#[test]
fn a_bucket_of_a_server_obeys_the_laws() {
    let Some(gateway) = Gateway::start() else {
        return;
    };
    laws(&gateway.store("plants", SECRET), "a/b");
    let refused = gateway
        .store("plants", "another")
        .get("a/b/head")
        .unwrap_err();
    assert!(refused.is_final, "{refused}");
    let missing = gateway
        .store("nowhere", SECRET)
        .create("x", b"x")
        .unwrap_err();
    assert!(missing.is_final, "{missing}");
}

#[test]
fn of_six_who_put_to_a_server_one_wins_each_time() {
    let Some(gateway) = Gateway::start() else {
        return;
    };
    let stores: Vec<S3> = (0..RACERS)
        .map(|_| gateway.store("plants", SECRET))
        .collect();
    let stores: Vec<&dyn ObjectStore> = stores.iter().map(|s| s as &dyn ObjectStore).collect();
    assert_eq!(race(&stores, "race", 20), vec![1; 40]);
}

#[test]
fn a_node_holds_a_group_in_a_bucket_of_a_server_and_gives_it_back() {
    let Some(gateway) = Gateway::start() else {
        return;
    };
    let store = gateway.store("plants", SECRET);
    let clock = SystemClock::new();
    let now = || Now {
        monotonic: clock.monotonic(),
        wall: clock.now(),
    };
    let mut epochs = Vec::new();
    for node in [1, 2] {
        let me = Me {
            node,
            name: format!("node-{node}"),
            lease_millis: 600_000,
        };
        let mut holder = Holder::new(me, 0, Arc::new(SystemChance::new()));
        while !holder.is_done() {
            if holder.is_ready(now()) {
                epochs.push(holder.head().unwrap().epoch);
                holder.give_back();
            }
            if let Some(request) = holder.next(now()) {
                let answer = carry_out(&store, &request);
                holder.take(now(), answer);
            }
        }
    }
    assert_eq!(epochs, [1, 2], "the second need not wait for ten minutes");
    let unknown = gateway.store("nowhere", SECRET);
    let error = read_head(&unknown, 0).unwrap_err();
    assert_eq!(error.kind(), BucketErrorKind::Denied);
}
