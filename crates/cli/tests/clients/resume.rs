//! A resumed chat finds the processes that it left running: by the session id if the client sends one, otherwise by
//! taking them over.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use pinfold_api::types::{InputRequest, Pty, PtySize, StartRequest, Status};
use pinfold_clients::agents::{Agent, Program, ServerAccess};
use pinfold_clients::model::Model;
use pinfold_clients::seen::Seen;
use pinfold_testkit::{Pinfold, until, until_some};
use serde_json::{Value, json};

use crate::PINFOLD;

/// Several runs of one client, one after the other, in one home and directory and with one model.
struct Project {
    program: Program,
    pinfold: Pinfold,
    model: Model,
    scratch: PathBuf,
}

/// A run of the client. Dropping it kills its process group.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            // Our own child, not yet reaped, so its process group id cannot have been reused.
            let _ = Command::new("kill").args(["-9", "--", &format!("-{}", self.0.id())]).status();
            let _ = self.0.wait();
        }
    }
}

impl Project {
    fn new(agent: Agent) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let program = agent.installed()?;
        let name = format!("pinfold-resume-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let scratch = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&scratch).expect("a scratch directory");
        Some(Project { program, pinfold: Pinfold::start(PINFOLD), model: Model::listen(), scratch })
    }

    fn command(&self) -> Command {
        self.program.command(&self.scratch, self.model.address, &ServerAccess::of(&self.pinfold))
    }

    /// Runs the client with these further arguments.
    fn run(&self, arguments: &[&str]) -> Run {
        let file = |name: &str| File::create(self.scratch.join(name)).expect("a file");
        let mut command = self.command();
        command.args(arguments).stdin(Stdio::null()).stdout(file("stdout")).stderr(file("stderr")).process_group(0);
        Run(command.spawn().expect("the client runs"))
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Seen {
        match self.model.call(tool, arguments) {
            Some(seen) => seen,
            None => panic!("the client came with no request after {tool}: {}", self.printed()),
        }
    }

    /// Starts the process that is to be found again; returns its id.
    fn leave_something(&mut self) -> String {
        let started = self.call("execute", &json!({ "command": "exec sleep 300", "background": true }));
        started.get("id")
    }

    /// Ends the model's turn, and waits until the client exits.
    fn end(&mut self, mut run: Run) {
        self.model.finish();
        let status = until_some("the end of the client", || run.0.try_wait().expect("a child"));
        assert!(status.success(), "{status}: {}", self.printed());
    }

    fn printed(&self) -> String {
        let read = |name: &str| std::fs::read_to_string(self.scratch.join(name)).unwrap_or_default();
        read("stdout") + &read("stderr")
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}

/// For a client that does not send its session id: the resumed chat is shown the processes left behind, and takes them
/// over in one call.
fn taken_over(agent: Agent, resume: &[&str]) -> Option<()> {
    let mut project = Project::new(agent)?;
    let run = project.run(&[]);
    let id = project.leave_something();
    let before = project.pinfold.show(&id).owner;
    project.end(run);
    let run = project.run(resume);
    let refused = project.call("process_output", &json!({ "id": id }));
    assert!(refused.text.contains("not_found") && refused.text.contains("adopt"), "{refused}");
    let listed = project.call("process_list", &json!({}));
    assert!(listed.text.contains("left_behind") && listed.text.contains(&id), "{listed}");
    let taken = project.call("process_list", &json!({ "adopt": "all" }));
    assert!(taken.text.contains("adopted") && !taken.text.contains("left_behind"), "{taken}");
    let record = project.pinfold.show(&id);
    assert!(record.status == Status::Running && record.owner != before, "{record:?}");
    project.pinfold.signal(&id, "KILL").expect("reached");
    project.pinfold.wait_finished(&id);
    let news = project.call("execute", &json!({ "command": "true" }));
    assert!(news.text.contains("news") && news.text.contains(&id), "{news}");
    project.end(run);
    Some(())
}

#[test]
fn a_resumed_gemini_chat_takes_over_what_it_left() {
    taken_over(Agent::Gemini, &["--resume", "latest"]);
}

#[test]
fn a_continued_opencode_chat_takes_over_what_it_left() {
    taken_over(Agent::Opencode, &["--continue"]);
}

/// With `--continue`, Claude Code gives its server a new session id; the file that it writes about itself has the right
/// one.
#[test]
fn a_continued_claude_chat_has_what_it_left() {
    let Some(mut project) = Project::new(Agent::Claude) else { return };
    let run = project.run(&[]);
    let id = project.leave_something();
    let before = project.pinfold.show(&id).owner;
    project.end(run);
    let run = project.run(&["--continue"]);
    let listed = project.call("process_list", &json!({}));
    assert!(listed.text.contains(&id) && !listed.text.contains("left_behind"), "{listed}");
    assert_eq!(project.pinfold.show(&id).owner, before);
    project.end(run);
}

/// A client on a terminal run by another pinfold, so that its screen can be read at any time.
struct OnTerminal {
    host: Pinfold,
    id: String,
}

impl OnTerminal {
    fn start(command: &Command) -> Self {
        let host = Pinfold::start(PINFOLD);
        let text = |text: &OsStr| text.to_str().expect("UTF-8").to_owned();
        let variable = |(name, value): (&OsStr, Option<&OsStr>)| Some(format!("{}={}", text(name), text(value?)));
        let mut argv = vec!["/usr/bin/env".to_owned(), "-i".to_owned(), "TERM=xterm-256color".to_owned()];
        argv.extend(command.get_envs().filter_map(variable));
        argv.push(text(command.get_program()));
        argv.extend(command.get_args().map(text));
        let cwd = command.get_current_dir().map(|path| text(path.as_os_str()));
        let request = StartRequest {
            argv: Some(argv),
            cwd,
            pty: Some(Pty::Sized(PtySize { rows: 40, cols: 140 })),
            ..StartRequest::default()
        };
        let id = host.start_request(&request).record.id;
        OnTerminal { host, id }
    }

    fn screen(&self) -> String {
        let screen = self.host.block(self.host.client().screen(&self.id));
        screen.map(|screen| screen.lines.join("\n")).unwrap_or_default()
    }

    fn until(&self, wanted: &str) {
        let mut screen = String::new();
        let mut seen = || {
            screen = self.screen();
            screen.contains(wanted)
        };
        until(&format!("`{wanted}` on the screen"), &mut seen);
    }

    /// Types a line, and presses return once the screen shows it.
    fn say(&self, line: &str) {
        let send = |input: InputRequest| self.host.block(self.host.client().input(&self.id, &input)).expect("typed");
        send(InputRequest { text: Some(line.into()), ..InputRequest::default() });
        self.until(line);
        send(InputRequest { keys: vec!["enter".into()], ..InputRequest::default() });
    }
}

/// Answers in advance what Claude Code asks in a new home.
fn answer_first_screens(home: &Path, work: &Path) {
    let project = json!({ "hasTrustDialogAccepted": true, "hasCompletedProjectOnboarding": true });
    let projects: BTreeMap<String, Value> = [(work.to_string_lossy().into_owned(), project)].into();
    let about = json!({
        "hasCompletedOnboarding": true,
        "theme": "dark",
        "bypassPermissionsModeAccepted": true,
        "customApiKeyResponses": { "approved": ["none"], "rejected": [] },
        "projects": projects,
    });
    std::fs::write(home.join(".claude.json"), about.to_string()).expect("written");
}

/// `/clear` starts a new session with the same server: running processes move to it, and resuming the new session later
/// finds them.
#[test]
fn what_claude_left_running_is_there_after_clear_and_after_a_resume_of_the_new_session() {
    let Some(mut project) = Project::new(Agent::Claude) else { return };
    let headless = project.command();
    answer_first_screens(&project.scratch.join("home"), &project.scratch.join("work"));
    let mut command = Command::new(headless.get_program());
    command.current_dir(headless.get_current_dir().expect("a directory"));
    command.envs(headless.get_envs().filter_map(|(name, value)| Some((name, value?))));
    // Without `-p go --output-format stream-json --verbose`.
    command.args(headless.get_args().skip(5));
    let terminal = OnTerminal::start(&command);
    terminal.until("bypass permissions");
    terminal.say("go");
    let id = project.leave_something();
    let before = project.pinfold.show(&id).owner;
    project.model.finish();
    terminal.until("done");
    terminal.say("/clear");
    until("an empty chat", || !terminal.screen().contains("done"));
    terminal.say("again");
    let listed = project.call("process_list", &json!({}));
    assert!(listed.text.contains(&id) && !listed.text.contains("left_behind"), "{listed}");
    let after = project.pinfold.show(&id).owner;
    assert!(after != before && after.starts_with("claude-"), "{before}, then {after}");
    project.model.finish();
    terminal.host.stop(&terminal.id);
    let session = after.strip_prefix("claude-").expect("a session").to_owned();
    let run = project.run(&["--resume", &session]);
    let listed = project.call("process_list", &json!({}));
    assert!(listed.text.contains(&id) && !listed.text.contains("left_behind"), "{listed}");
    assert_eq!(project.pinfold.show(&id).owner, after);
    project.end(run);
}
