//! A program on a bare pseudoterminal: what pinfold's own terminals are compared with, and where its own commands are
//! driven as a person would.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use pinfold_os::poll::{Interest, wait_ready};
use pinfold_os::pty::{self, Size};

use crate::procs::PATIENCE;

/// A program and our end of its terminal. Dropped, the program is ended.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    master: File,
    /// All that it wrote.
    said: Vec<u8>,
}

impl Terminal {
    /// Starts a program on a terminal of this size.
    pub fn start(command: &mut Command, rows: u16, cols: u16) -> std::io::Result<Self> {
        let terminal = pty::open(Size { rows, cols })?;
        let (output, errors) = (terminal.slave.try_clone()?, terminal.slave.try_clone()?);
        command.stdin(Stdio::from(terminal.slave)).stdout(Stdio::from(output)).stderr(Stdio::from(errors));
        let child = command.spawn()?;
        // The command holds the program's end: without this we would wait for our own.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { child, master: File::from(terminal.master), said: Vec::new() })
    }

    /// Types.
    pub fn write(&mut self, bytes: &[u8]) {
        self.master.write_all(bytes).expect("a terminal that takes it");
    }

    /// What it writes next; empty when it has ended.
    pub fn read(&mut self) -> Vec<u8> {
        wait_ready(&[(self.master.as_fd(), Interest::Read)], Some(PATIENCE)).expect("a terminal to wait for");
        let mut buffer = [0; 16 * 1024];
        // A terminal that nobody has open any more is an error to read.
        let count = self.master.read(&mut buffer).unwrap_or(0);
        self.said.extend(&buffer[..count]);
        buffer[..count].to_vec()
    }

    /// Waits until it has written this; gives all that it wrote.
    #[track_caller]
    pub fn until(&mut self, wanted: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let said = String::from_utf8_lossy(&self.said).into_owned();
            if said.contains(wanted) {
                return said;
            }
            let ended = self.read().is_empty();
            assert!(!ended && Instant::now() < deadline, "`{wanted}` never came: {said:?}");
        }
    }

    /// Forgets what it has written.
    pub fn forget(&mut self) {
        self.said.clear();
    }

    pub fn resize(&self, rows: u16, cols: u16) {
        pty::resize(self.master.as_fd(), Size { rows, cols }).expect("a terminal of that size");
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end, reading what it still writes.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("our own child") {
                return status;
            }
            assert!(Instant::now() < deadline, "it never ends: {:?}", String::from_utf8_lossy(&self.said));
            let ready = wait_ready(&[(self.master.as_fd(), Interest::Read)], Some(Duration::from_millis(10)));
            if ready.is_ok_and(|ready| ready[0].read) {
                self.read();
            }
        }
    }

    /// Whether its settings echo what is typed: a shell's own have that on, raw ones off.
    pub fn echoes(&self) -> bool {
        pty::echoes(self.master.as_fd())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Our own child, not yet reaped: its pid is still its own.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
