//! Clients that cost little themselves: requests are bytes made beforehand, answers are read up to
//! their end.

use crate::harness::Failure;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A request as bytes of HTTP.
pub(crate) fn post(path: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// True for the complete header of an answer without a body. Any other answer is an error.
fn is_stored(answer: &[u8]) -> Result<bool, Failure> {
    if !answer.ends_with(b"\r\n\r\n") {
        if answer.len() > 64 << 10 {
            return Err("an endless answer".into());
        }
        return Ok(false);
    }
    if !answer.starts_with(b"HTTP/1.1 204") {
        return Err(String::from_utf8_lossy(answer).into_owned().into());
    }
    Ok(true)
}

/// Sends each request over one of `connections`, one after the other on each, from a thread per
/// connection.
pub(crate) fn by_threads(
    addr: SocketAddr,
    connections: usize,
    requests: &[Vec<u8>],
) -> Result<(), Failure> {
    let next = AtomicUsize::new(0);
    let one = || -> Result<(), String> {
        let mut socket = TcpStream::connect(addr).map_err(|e| e.to_string())?;
        socket.set_nodelay(true).map_err(|e| e.to_string())?;
        let mut buffer = vec![0; 16 << 10];
        while let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
            socket.write_all(request).map_err(|e| e.to_string())?;
            let mut filled = 0;
            loop {
                let free = buffer.get_mut(filled..).unwrap_or_default();
                let read = socket.read(free).map_err(|e| e.to_string())?;
                filled += read;
                let answer = buffer.get(..filled).unwrap_or_default();
                if read == 0 {
                    return Err("the server closed the connection".to_owned());
                }
                if is_stored(answer).map_err(|e| e.to_string())? {
                    break;
                }
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..connections.max(1)).map(|_| scope.spawn(one)).collect();
        threads.into_iter().try_for_each(|thread| {
            let ended = thread.join().map_err(|_| "a client panicked")?;
            Ok(ended?)
        })
    })
}

/// As [`by_threads`], for many connections: all from one thread.
pub(crate) fn by_tasks(
    addr: SocketAddr,
    connections: usize,
    requests: Vec<Vec<u8>>,
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let requests = std::sync::Arc::new(requests);
    let next = std::sync::Arc::new(AtomicUsize::new(0));
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for _ in 0..connections.max(1) {
            let mut socket = tokio::net::TcpStream::connect(addr).await?;
            socket.set_nodelay(true)?;
            let (requests, next) = (requests.clone(), next.clone());
            tasks.push(tokio::spawn(async move {
                let mut answer = Vec::with_capacity(1024);
                while let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    socket.write_all(request).await.map_err(|e| e.to_string())?;
                    answer.clear();
                    while !is_stored(&answer).map_err(|e| e.to_string())? {
                        let read = socket.read_buf(&mut answer).await;
                        if read.map_err(|e| e.to_string())? == 0 {
                            return Err("the server closed the connection".to_owned());
                        }
                    }
                }
                Ok(())
            }));
        }
        for task in tasks {
            task.await??;
        }
        Ok(())
    })
}
