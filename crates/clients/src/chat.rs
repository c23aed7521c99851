//! One chat: a running client, and the model that the caller scripts.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use pinfold_testkit::{Pidfd, Pinfold, alive, command_line, until_some};
use serde_json::Value;

use crate::agents::{Agent, Mode, Program, ServerAccess};
use crate::dialect::{Call, ToolSet};
use crate::model::Model;
use crate::seen::Seen;

/// The most bytes of a client's output in an error.
const MAX_PRINTED: usize = 2000;

/// A chat. Dropping it ends its client and removes its files.
pub struct Chat {
    client: Child,
    pub model: Model,
    program: Program,
    access: ServerAccess,
    scratch: PathBuf,
    /// The model's calls and their results, in order.
    log: String,
}

impl Chat {
    /// A chat whose client starts pinfold's server over stdio.
    pub fn start(program: &Program, pinfold: &Pinfold) -> Self {
        Self::start_by(program, &ServerAccess::of(pinfold))
    }

    pub fn start_by(program: &Program, access: &ServerAccess) -> Self {
        Self::start_changed(program, access, |_, _| {})
    }

    /// A chat whose client is modified before it starts; `change` gets the scratch directory.
    pub fn start_changed(program: &Program, access: &ServerAccess, change: impl FnOnce(&mut Command, &Path)) -> Self {
        let scratch = new_scratch();
        let model = Model::listen();
        let mut command = program.command(&scratch, model.address, access);
        change(&mut command, &scratch);
        let client = spawn(command, &scratch);
        Chat { client, model, program: program.clone(), access: access.clone(), scratch, log: String::new() }
    }

    pub fn agent(&self) -> Agent {
        self.program.agent()
    }

    /// The client's working directory.
    pub fn work(&self) -> PathBuf {
        self.scratch.join("work")
    }

    /// The directory that holds all files of the chat.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Calls a tool of pinfold as the model; returns the result as the model sees it.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Seen {
        let call = Call { from: ToolSet::Pinfold, tool: tool.to_owned(), arguments: arguments.clone() };
        self.call_all(vec![call]).pop().expect("one result")
    }

    /// Makes these calls in one turn; returns each result as the model sees it.
    pub fn call_all(&mut self, calls: Vec<Call>) -> Vec<Seen> {
        for Call { tool, arguments, .. } in &calls {
            self.log.push_str(&format!("> {tool} {arguments}\n"));
        }
        let tools = || calls.iter().map(|call| call.tool.as_str()).collect::<Vec<_>>().join(", ");
        let Some(results) = self.model.call_all(calls.clone()) else {
            panic!("the client sent no request after {}: {}", tools(), last(&self.printed()));
        };
        for Seen { text } in &results {
            self.log.push_str(&format!("< {} bytes\n{text}\n", text.len()));
        }
        results
    }

    /// The model's calls and their results so far.
    pub fn log(&self) -> &str {
        &self.log
    }

    /// Ends the model's turn, waits until the client exits, and returns its output.
    pub fn end(mut self) -> String {
        self.model.finish();
        let status = until_some("the end of the client", || self.client.try_wait().expect("a child"));
        let printed = self.printed();
        assert!(status.success(), "{status}: {printed}");
        printed
    }

    /// The pids of pinfold's servers for this client: those whose working directory is the chat's.
    pub fn servers(&self) -> Vec<u32> {
        let here = |pid: &u32| {
            let directory = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
            directory.starts_with(&self.scratch)
        };
        pids().filter(|pid| command_line(*pid).ends_with(" mcp") && here(pid) && alive(*pid)).collect()
    }

    /// Kills the client's process group; its id stays reserved until the client is reaped.
    pub fn kill_group(&mut self) {
        let group = format!("-{}", self.client.id());
        let kill = Command::new("kill").args(["-9", "--", &group]).status();
        assert!(kill.expect("kill").success(), "{group}");
        let _ = self.client.wait();
    }

    /// Kills the client's process group, then starts a client that continues the same chat.
    pub fn kill_and_resume(&mut self) {
        self.kill_group();
        self.model.forget_turn();
        let mode = Mode::Resumed { chat: self.program.agent().chat_id(&self.printed()) };
        let command = self.program.command_in(&mode, &self.scratch, self.model.address, &self.access);
        self.client = spawn(command, &self.scratch);
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

/// The end of a long text.
fn last(text: &str) -> &str {
    let from = text.len().saturating_sub(MAX_PRINTED);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[from..]
}

pub(crate) fn new_scratch() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("pinfold-chat-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let scratch = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&scratch).expect("a scratch directory");
    scratch
}

fn spawn(mut command: Command, scratch: &Path) -> Child {
    let file = |name: &str| File::options().create(true).append(true).open(scratch.join(name)).expect("a file");
    command.stdin(Stdio::null()).stdout(file("stdout")).stderr(file("stderr")).process_group(0);
    command.spawn().expect("the client runs")
}

/// What a client's own tools leave running: every process with the chat's directory in its environment. Dropping it,
/// after the chat's daemon, kills them and removes their files.
pub struct Leftovers {
    scratch: PathBuf,
}

impl Leftovers {
    pub fn of(chat: &Chat) -> Self {
        Leftovers { scratch: chat.scratch.clone() }
    }

    /// Processes that are still running.
    fn find(&self) -> Vec<Pidfd> {
        let mark = self.scratch.to_string_lossy().into_owned();
        let ours = |pid: &u32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.windows(mark.len()).any(|window| window == mark.as_bytes())
        };
        // Open the pidfd first, then check: the pid cannot be reused in between.
        let held = pids().filter_map(|pid| Some((pid, Pidfd::open(pid)?)));
        held.filter(|(pid, _)| ours(pid)).map(|(_, held)| held).collect()
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        // Repeat for processes that were forked in the meantime.
        for _ in 0..100 {
            let found = self.find();
            if found.is_empty() {
                break;
            }
            found.iter().for_each(Pidfd::kill);
        }
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}
