//! A server of S3's protocol: versitygw, over a folder of its own.

use crate::{free_port, installed, or_skip, until};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A server with one bucket, [`S3Server::BUCKET`], until it is dropped.
#[derive(Debug)]
pub struct S3Server {
    child: Child,
    endpoint: String,
    folder: tempfile::TempDir,
}

impl S3Server {
    /// The bucket that is there.
    pub const BUCKET: &str = "plants";
    /// The key that the server knows.
    pub const KEY: &str = "testkey";
    /// The secret of that key.
    pub const SECRET: &str = "testsecret12";

    /// Starts one, and waits until it answers; `None` where it is not installed, which is reported
    /// as by [`or_skip`]. `VERSITYGW` names the program where it lies elsewhere.
    pub fn start() -> Option<S3Server> {
        let named = std::env::var_os("VERSITYGW").map(PathBuf::from);
        let program = or_skip(named.map_or_else(|| installed("versitygw"), Ok))?;
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(S3Server::BUCKET)).unwrap();
        let port = free_port();
        let child = Command::new(program)
            .args(["--port", &format!("127.0.0.1:{port}"), "posix"])
            .arg(folder.path())
            .env("ROOT_ACCESS_KEY", S3Server::KEY)
            .env("ROOT_SECRET_KEY", S3Server::SECRET)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut server = S3Server {
            child,
            endpoint: format!("http://127.0.0.1:{port}"),
            folder,
        };
        until("versitygw answers", || {
            assert_eq!(server.child.try_wait().unwrap(), None, "versitygw ended");
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Some(server)
    }

    /// Where it is, as `http://HOST:PORT`.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The folder that has the bucket's objects as files.
    pub fn bucket_folder(&self) -> PathBuf {
        self.folder.path().join(S3Server::BUCKET)
    }

    /// All objects of the bucket whose names have this ending, as files.
    pub fn objects(&self, extension: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.bucket_folder()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if Path::new(&path).extension().is_some_and(|e| e == extension) {
                    found.push(path);
                }
            }
        }
        found
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
