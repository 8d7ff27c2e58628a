//! Listening sockets and connections: sockets of the file system, and TCP on this machine.
//!
//! Invariants: TCP is on a loopback address, since the protocol has no authentication. Concurrency:
//! a connection may be read, written and shut down by different threads. Failure: errors of the
//! system.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// Connections that may wait to be accepted.
const WAITING_MAX: i32 = 128;

/// Address of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A socket in the file system: `unix:PATH`.
    Unix(PathBuf),
    /// A port of this machine: `tcp:127.0.0.1:10809`; port 0 is any free one.
    Tcp(SocketAddr),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let expected = || {
            format!(
                "`{text}` is not an address: expected unix:PATH or tcp:ADDRESS:PORT, for example unix:/run/headwater.sock or tcp:127.0.0.1:10809"
            )
        };
        match text.split_once(':').ok_or_else(expected)? {
            ("unix", path) if !path.is_empty() => Ok(Address::Unix(PathBuf::from(path))),
            ("tcp", address) => {
                let address: SocketAddr = address.parse().map_err(|_| expected())?;
                if !address.ip().is_loopback() {
                    return Err(format!(
                        "{address} is reachable from other machines, and NBD has no authentication: listen on 127.0.0.1, [::1] or a Unix socket"
                    ));
                }
                Ok(Address::Tcp(address))
            }
            _ => Err(expected()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

impl Address {
    /// The address as clients write it.
    #[must_use]
    pub fn uri(&self) -> String {
        match self {
            Address::Unix(path) => format!("nbd+unix:///?socket={}", path.display()),
            Address::Tcp(address) => format!("nbd://{address}"),
        }
    }
}

/// A listening socket.
#[derive(Debug)]
pub(crate) enum Listener {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

impl Listener {
    pub(crate) fn bind(address: &Address) -> io::Result<Listener> {
        match address {
            Address::Tcp(address) => Ok(Listener::Tcp(TcpListener::bind(address)?)),
            Address::Unix(path) => {
                remove_stale(path)?;
                Ok(Listener::Unix(private_listener(path)?, path.clone()))
            }
        }
    }

    /// Address it listens on, with the port that it got.
    pub(crate) fn address(&self) -> io::Result<Address> {
        match self {
            Listener::Unix(_, path) => Ok(Address::Unix(path.clone())),
            Listener::Tcp(listener) => Ok(Address::Tcp(listener.local_addr()?)),
        }
    }

    pub(crate) fn accept(&self) -> io::Result<Socket> {
        match self {
            Listener::Unix(listener, _) => Ok(Socket::Unix(listener.accept()?.0)),
            Listener::Tcp(listener) => {
                let socket = listener.accept()?.0;
                socket.set_nodelay(true)?;
                Ok(Socket::Tcp(socket))
            }
        }
    }

    /// Wakes the accepting thread: with an error, or with a connection where a listening socket
    /// cannot be shut down.
    pub(crate) fn wake(&self) -> io::Result<()> {
        if self.shut_down().is_ok() {
            return Ok(());
        }
        match self.address()? {
            Address::Unix(path) => UnixStream::connect(path).map(drop),
            Address::Tcp(address) => TcpStream::connect(address).map(drop),
        }
    }

    /// Refuses further connections. On Linux a listening socket is shut down like a connected one,
    /// which the types do not express.
    fn shut_down(&self) -> io::Result<()> {
        match self {
            Listener::Unix(listener, _) => {
                let handle = OwnedFd::from(listener.try_clone()?);
                UnixStream::from(handle).shutdown(Shutdown::Both)
            }
            Listener::Tcp(listener) => {
                let handle = OwnedFd::from(listener.try_clone()?);
                TcpStream::from(handle).shutdown(Shutdown::Both)
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            // Left over otherwise; the next one to listen there removes it.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Listens at a socket to which only its owner may connect. The mode of the socket is set before it
/// has a name (Linux copies the mode of the socket to the file), so that other users can never
/// connect.
fn private_listener(path: &Path) -> io::Result<UnixListener> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::fs::fchmod(&socket, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, WAITING_MAX)?;
    Ok(UnixListener::from(socket))
}

/// Removes the socket of a server that has ended. A socket in use, or a file of another type, is
/// not removed: then listening fails.
fn remove_stale(path: &Path) -> io::Result<()> {
    let Ok(found) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if found.file_type().is_socket() && UnixStream::connect(path).is_err_and(refused) {
        return std::fs::remove_file(path);
    }
    Ok(())
}

/// A connection.
#[derive(Debug)]
pub(crate) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    pub(crate) fn try_clone(&self) -> io::Result<Socket> {
        match self {
            Socket::Unix(socket) => Ok(Socket::Unix(socket.try_clone()?)),
            Socket::Tcp(socket) => Ok(Socket::Tcp(socket.try_clone()?)),
        }
    }

    pub(crate) fn shut_down(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Socket::Unix(socket) => socket.shutdown(how),
            Socket::Tcp(socket) => socket.shutdown(how),
        }
    }

    /// Sets the timeouts of reads and writes; `None` = unlimited.
    pub(crate) fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Unix(socket) => {
                socket.set_read_timeout(patience)?;
                socket.set_write_timeout(patience)
            }
            Socket::Tcp(socket) => {
                socket.set_read_timeout(patience)?;
                socket.set_write_timeout(patience)
            }
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(socket) => socket.read(buf),
            Socket::Tcp(socket) => socket.read(buf),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(socket) => socket.write(buf),
            Socket::Tcp(socket) => socket.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Socket::Unix(socket) => socket.flush(),
            Socket::Tcp(socket) => socket.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    #![allow(clippy::disallowed_methods, reason = "tests")]

    use super::*;

    #[test]
    fn addresses_are_read_and_printed() {
        for text in ["unix:/run/a.sock", "tcp:127.0.0.1:10809", "tcp:[::1]:0"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["", "unix:", "/run/a.sock", "tcp:127.0.0.1", "tcp:x:1"] {
            assert!(text.parse::<Address>().unwrap_err().contains("expected"));
        }
        let open = "tcp:0.0.0.0:10809".parse::<Address>().unwrap_err();
        assert!(open.contains("other machines"), "{open}");
    }

    /// The socket is private from its creation on, whatever the umask.
    #[test]
    fn a_socket_is_its_owners_alone_from_the_first_instant() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let address = Address::Unix(path.clone());
        let is_done = std::sync::atomic::AtomicBool::new(false);
        let ordering = std::sync::atomic::Ordering::Relaxed;
        let look = || {
            let mut seen = std::collections::BTreeSet::new();
            while !is_done.load(ordering) {
                let found = std::fs::symlink_metadata(&path);
                seen.extend(found.map(|f| f.permissions().mode() & 0o777));
            }
            seen
        };
        std::thread::scope(|scope| {
            let looking = scope.spawn(look);
            for _ in 0..500 {
                drop(Listener::bind(&address).unwrap());
            }
            let listener = Listener::bind(&address).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            is_done.store(true, ordering);
            let seen = looking.join().unwrap();
            assert!(seen.iter().eq([&0o600]), "{seen:?}");
            drop(listener);
        });
    }

    #[test]
    fn a_left_over_socket_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let address = Address::Unix(path.clone());
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let listener = Listener::bind(&address).unwrap();
        assert!(Listener::bind(&address).is_err(), "somebody listens");
        drop(listener);
        assert!(!path.exists());
        std::fs::write(&path, "mine").unwrap();
        assert!(Listener::bind(&address).is_err());
        assert!(path.exists());
    }
}
