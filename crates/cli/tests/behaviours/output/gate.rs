//! A gate: a command waits at it until the test opens it.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::Command;

use pinfold_testkit::{Pinfold, until_some};

/// A fifo in the home. Each gate is for one command and one opening.
#[derive(Debug)]
pub(crate) struct Gate(PathBuf);

impl Gate {
    pub(crate) fn new(pinfold: &Pinfold, name: &str) -> Self {
        let path = pinfold.home().join(format!("gate-{name}"));
        assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo").success());
        Self(path)
    }

    /// Shell code that waits here.
    pub(crate) fn wait(&self) -> String {
        format!("read go < {}", self.0.display())
    }

    /// Waits until the command has arrived, and holds it there.
    pub(crate) fn reached(&self) -> Reached {
        const O_NONBLOCK: i32 = 0o4000;
        let mut options = File::options();
        // Without a reader this open fails.
        options.write(true).custom_flags(O_NONBLOCK);
        Reached(until_some("a command at the gate", || options.open(&self.0).ok()))
    }

    /// Lets the command continue, once it has arrived.
    pub(crate) fn open(&self) {
        self.reached().open();
    }
}

/// A command that waits at its gate.
#[derive(Debug)]
pub(crate) struct Reached(File);

impl Reached {
    pub(crate) fn open(mut self) {
        self.0.write_all(b"\n").expect("an open gate");
    }
}
