//! A program on a pseudoterminal without pinfold: to compare pinfold's terminals with, and to use pinfold's interactive
//! commands as a person would.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use pinfold_os::poll::{Interest, wait_ready};
use pinfold_os::pty;

use crate::procs::DEADLINE;

/// A program and our end of its terminal. The program is killed when this is dropped.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    master: File,
    /// Its output since the start or the last [`Self::forget`].
    output: Vec<u8>,
}

impl Terminal {
    /// Starts a program on a terminal of this size.
    pub fn start(command: &mut Command, rows: u16, cols: u16) -> std::io::Result<Self> {
        let terminal = pty::open(rows, cols)?;
        let (output, errors) = (terminal.slave.try_clone()?, terminal.slave.try_clone()?);
        command.stdin(Stdio::from(terminal.slave)).stdout(Stdio::from(output)).stderr(Stdio::from(errors));
        let child = command.spawn()?;
        // Close the program's end in `command`: while we have it open ourselves, reading never reports the end.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { child, master: File::from(terminal.master), output: Vec::new() })
    }

    /// Types these bytes.
    pub fn write(&mut self, bytes: &[u8]) {
        self.master.write_all(bytes).expect("the terminal accepts input");
    }

    /// Its next output; empty when it has ended.
    pub fn read(&mut self) -> Vec<u8> {
        wait_ready(&[(self.master.as_fd(), Interest::Read)], Some(DEADLINE)).expect("a terminal to wait for");
        let mut buffer = [0; 16 * 1024];
        // Reading fails (EIO) when no process has the other end open.
        let count = self.master.read(&mut buffer).unwrap_or(0);
        self.output.extend(&buffer[..count]);
        buffer[..count].to_vec()
    }

    /// Waits until its output contains this text; returns all of its output.
    #[track_caller]
    pub fn until(&mut self, wanted: &str) -> String {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let output = String::from_utf8_lossy(&self.output).into_owned();
            if output.contains(wanted) {
                return output;
            }
            let ended = self.read().is_empty();
            assert!(!ended && Instant::now() < deadline, "`{wanted}` is not in the output: {output:?}");
        }
    }

    /// Discards its output so far.
    pub fn forget(&mut self) {
        self.output.clear();
    }

    pub fn resize(&self, rows: u16, cols: u16) {
        pty::resize(self.master.as_fd(), rows, cols).expect("a terminal of that size");
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end, and reads its output meanwhile.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.child.try_wait().expect("our own child") {
                return status;
            }
            let output = || String::from_utf8_lossy(&self.output);
            assert!(Instant::now() < deadline, "timed out waiting for its end: {:?}", output());
            let ready = wait_ready(&[(self.master.as_fd(), Interest::Read)], Some(Duration::from_millis(10)));
            if ready.is_ok_and(|ready| ready[0].read) {
                self.read();
            }
        }
    }

    /// Whether the terminal echoes its input: on in a shell's settings, off in raw mode.
    pub fn echoes(&self) -> bool {
        pty::echoes(self.master.as_fd())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Our own child, not reaped yet: the pid cannot belong to another process.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
