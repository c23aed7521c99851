//! Faults caused by other programs of the same user: connections to the sockets in the home that send nothing, garbage or half a
//! message, and deletion of a socket.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Instant;

use super::faults::FaultInjector;

/// Foreign connections open at the same time.
const MAX_OPEN: usize = 32;

impl FaultInjector<'_> {
    /// Connects to some of the sockets and sends something invalid.
    pub(super) fn intrude(&mut self) {
        let sockets = self.sockets();
        for _ in 0..self.dice.between(1, 8) {
            let Some(socket) = self.dice.pick(&sockets).cloned() else { return };
            let (what, stay) = (self.dice.between(0, 6), self.dice.millis(0, 1500));
            let Ok(mut stream) = UnixStream::connect(socket) else { continue };
            let _ = stream.set_write_timeout(Some(std::time::Duration::from_millis(100)));
            let _ = match what {
                0 | 1 => Ok(()),
                2 => stream.write_all(&vec![0xff; 4096]),
                3 => stream.write_all(b"\x40\0\0\0{\"half\": "),
                4 => stream.write_all(b"GET /v1/processes HTTP/1.1\r\nHost: x\r\n"),
                _ => {
                    let message = br#"{"no_such_message":{"request":1}}"#;
                    let length = (message.len() as u32).to_le_bytes();
                    stream.write_all(&[&length[..], &message[..]].concat())
                }
            };
            self.count("foreign connection");
            if self.intruders.len() < MAX_OPEN {
                self.intruders.push((Instant::now() + stay, stream));
            }
        }
    }

    /// Deletes the daemon's socket, as a cleanup of temporary files might.
    pub(super) fn remove_socket(&mut self) {
        if std::fs::remove_file(self.play.scene.home.join("socket")).is_ok() {
            self.count("socket deleted");
        }
    }

    /// Every socket in the home.
    fn sockets(&self) -> Vec<PathBuf> {
        let home = &self.play.scene.home;
        let keepers = std::fs::read_dir(home.join("keepers")).into_iter().flatten().flatten();
        std::iter::once(home.join("socket")).chain(keepers.map(|entry| entry.path())).collect()
    }
}
