//! One chat: a client that runs, and the model that the test plays.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use pinfold_testkit::{Pinfold, alive, command_line, until_some};
use serde_json::Value;

use crate::PINFOLD;
use crate::agents::{Program, Way};
use crate::model::Model;
use crate::seen::Seen;

/// A chat. Its client is ended and its files are removed when it is dropped.
pub(crate) struct Chat {
    client: Child,
    model: Model,
    scratch: PathBuf,
    /// What tells its servers from those of other chats.
    mark: String,
}

impl Chat {
    /// A chat whose client starts pinfold's server itself.
    pub(crate) fn start(program: &Program, pinfold: &Pinfold) -> Self {
        Self::start_by(program, &Way::Stdio { home: pinfold.home().to_owned() })
    }

    pub(crate) fn start_by(program: &Program, way: &Way) -> Self {
        Self::start_changed(program, way, |_, _| {})
    }

    /// A chat whose client is changed before it runs; `change` gets the directory with its home and its work.
    pub(crate) fn start_changed(program: &Program, way: &Way, change: impl FnOnce(&mut Command, &Path)) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mark = format!("pinfold-chat-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let scratch = std::env::temp_dir().join(&mark);
        std::fs::create_dir_all(&scratch).expect("a scratch directory");
        let model = Model::listen();
        let mut command = program.command(&scratch, model.address, way);
        change(&mut command, &scratch);
        let file = |name: &str| File::create(scratch.join(name)).expect("a file");
        command.stdin(Stdio::null()).stdout(file("stdout")).stderr(file("stderr")).process_group(0);
        let client = command.spawn().expect("the client runs");
        Chat { client, model, scratch, mark }
    }

    /// Calls a tool as the model, and gives what the model sees of its result.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Seen {
        match self.model.call(tool, arguments) {
            Some(seen) => seen,
            None => panic!("the client came with no request after {tool}: {}", self.printed()),
        }
    }

    /// Ends the model's turn, waits for the client's end, and gives what it printed.
    pub(crate) fn end(mut self) -> String {
        self.model.finish();
        let status = until_some("the end of the client", || self.client.try_wait().expect("a child"));
        let printed = self.printed();
        assert!(status.success(), "{status}: {printed}");
        printed
    }

    /// The servers of ours that run for this client: those whose directory is the chat's own.
    pub(crate) fn servers(&self) -> Vec<u32> {
        let pids = std::fs::read_dir("/proc").expect("/proc").flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let here = |pid: &u32| {
            let directory = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
            directory.to_string_lossy().contains(&self.mark)
        };
        pids.filter(|pid| command_line(*pid).starts_with(PINFOLD) && here(pid) && alive(*pid)).collect()
    }

    /// KILL to the client and its whole group, whose number is reserved until it is reaped.
    pub(crate) fn kill_group(&mut self) {
        let group = format!("-{}", self.client.id());
        let kill = Command::new("kill").args(["-9", "--", &group]).status();
        assert!(kill.expect("kill").success(), "{group}");
        let _ = self.client.wait();
    }

    fn printed(&self) -> String {
        let read = |name: &str| std::fs::read_to_string(self.scratch.join(name)).unwrap_or_default();
        read("stdout") + &read("stderr")
    }
}

impl Drop for Chat {
    fn drop(&mut self) {
        if matches!(self.client.try_wait(), Ok(None)) {
            let group = format!("-{}", self.client.id());
            let _ = Command::new("kill").args(["-9", "--", &group]).status();
            let _ = self.client.wait();
        }
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}
