//! Shuts down connections of another process; to that process it looks like any failed connection.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// Duplicates of the connected Unix sockets of a process.
pub fn connections_of(pid: u32) -> io::Result<Vec<OwnedFd>> {
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    let pidfd = pidfd_open(process, PidfdFlags::empty())?;
    let mut connections = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
        let is_socket = std::fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(number) = number.filter(|_| is_socket) {
            let socket = pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty())?;
            if !rustix::net::sockopt::socket_acceptconn(socket.as_fd())? {
                connections.push(socket);
            }
        }
    }
    Ok(connections)
}

/// Shuts down all Unix connections of a process; returns how many there were.
pub fn cut_connections(pid: u32) -> io::Result<usize> {
    let connections = connections_of(pid)?;
    let count = connections.len();
    for connection in connections {
        UnixStream::from(connection).shutdown(Shutdown::Both)?;
    }
    Ok(count)
}
