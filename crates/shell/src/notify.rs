//! Reports the state of the process to systemd (`sd_notify`, `Type=notify`).
//!
//! Source: the protocol in sd_notify(3): a datagram of `KEY=VALUE` lines to the socket named by
//! `NOTIFY_SOCKET`.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends a state, if the process was started with a socket for it.
pub(crate) fn notify(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let sent = (|| {
        let address = match name.as_bytes() {
            [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
            _ => SocketAddr::from_pathname(&name)?,
        };
        UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)
    })();
    if let Err(error) = sent {
        tracing::warn!(%error, "systemd cannot be notified of the state of the server");
    }
}
