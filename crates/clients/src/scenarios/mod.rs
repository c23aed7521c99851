//! Twenty scenarios of what agents do with commands. Each is written once, as steps for any set of tools, with a
//! checked goal.

mod programs;
mod servers;
mod short;
mod talking;

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use pinfold_testkit::{alive, until};

use crate::chat::Chat;
use crate::shells::{Done, Ended, Shell, Stop};

/// A scenario.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its description in the table.
    pub title: &'static str,
    play: fn(&mut Stage<'_>) -> Done<()>,
}

/// All of them, in the order of the table.
pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "echo", title: "a quick `echo`", play: short::echo },
    Scenario { name: "five", title: "five commands of one second, one after the other", play: short::five },
    Scenario { name: "ten", title: "ten commands in one turn", play: short::ten },
    Scenario { name: "place", title: "a command in a sub-directory, with a variable", play: short::place },
    Scenario { name: "typo", title: "a command that is not found, then the right one", play: short::typo },
    Scenario { name: "signal", title: "a command killed by a signal", play: short::signal },
    Scenario { name: "build", title: "a build fails and is mended", play: short::build },
    Scenario { name: "tests", title: "500 tests, three of them fail", play: short::tests },
    Scenario { name: "noise", title: "2 MB of output, the error in the middle", play: short::noise },
    Scenario { name: "slow", title: "a command of 40 s, default timeouts", play: short::slow },
    Scenario { name: "server", title: "a dev server, its log, its end", play: servers::server },
    Scenario { name: "port", title: "a silent server: wait for its port", play: servers::port },
    Scenario { name: "crash", title: "two servers, one crashes during other work", play: servers::crash },
    Scenario { name: "stray", title: "`cmd &` in a script, then stopped", play: servers::stray },
    Scenario {
        name: "stubborn",
        title: "a stop of what ignores TERM and has a detached child",
        play: servers::stubborn,
    },
    Scenario {
        name: "resume",
        title: "`kill -9` of the client, resume, the server still serves",
        play: servers::resume,
    },
    Scenario { name: "watch", title: "a watcher: an error, then its repair", play: talking::watch },
    Scenario { name: "search", title: "one line in a log of 3 MB", play: talking::search },
    Scenario { name: "question", title: "a question on the terminal, answered", play: talking::question },
    Scenario { name: "repl", title: "three lines in a REPL", play: talking::repl },
];

impl Scenario {
    pub fn play(&self, chat: &mut Chat, shell: &mut dyn Shell) -> Done<()> {
        let work = chat.work();
        programs::place(&work);
        let tag = work.parent().and_then(|scratch| scratch.file_name()).unwrap_or_default().to_string_lossy();
        let tag = tag.trim_start_matches("pinfold-chat-").to_owned();
        (self.play)(&mut Stage { chat, shell, tag })
    }

    pub fn named(name: &str) -> Option<Scenario> {
        SCENARIOS.iter().copied().find(|scenario| scenario.name == name)
    }
}

/// What a scenario needs.
struct Stage<'a> {
    chat: &'a mut Chat,
    shell: &'a mut dyn Shell,
    /// A word that is unique on this machine.
    tag: String,
}

impl Stage<'_> {
    fn run(&mut self, line: &str) -> Done<Ended> {
        self.shell.run(self.chat, line)
    }

    fn run_for_code(&mut self, line: &str) -> Done<Ended> {
        self.shell.run_for_code(self.chat, line)
    }

    /// Copies a program of the project to a name that is unique on this machine.
    fn own(&self, program: &str) -> (String, String) {
        let (stem, ending) = program.split_once('.').unwrap_or((program, ""));
        let tag = format!("{stem}-{}", self.tag);
        let name = format!("{tag}.{ending}");
        std::fs::copy(self.work().join(program), self.work().join(&name)).expect("a copy");
        (name, tag)
    }

    fn work(&self) -> PathBuf {
        self.chat.work()
    }

    /// Waits until every process that wrote its pid has ended.
    fn all_gone(&self) -> Done<()> {
        let noted = std::fs::read_to_string(self.work().join("pids")).unwrap_or_default();
        let pids: Vec<u32> = noted.lines().filter_map(|line| line.trim().parse().ok()).collect();
        if pids.is_empty() {
            return Err(Stop::Failed("nothing ever ran".into()));
        }
        until("the stopped programs have exited", || pids.iter().all(|pid| !alive(*pid)));
        Ok(())
    }
}

/// A free port below the ephemeral range, which other chats use all the time.
fn free_port() -> u16 {
    const FIRST: u32 = 20_000;
    const COUNT: u32 = 12_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Other test programs start their search elsewhere.
    let begin = std::process::id().wrapping_mul(97) % COUNT;
    let ports = (0..COUNT).map(|_| FIRST + (begin + NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT);
    let mut ports = ports.map(|port| port as u16);
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a free port")
}

fn is_open(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// Fails unless the model learned this exit code.
fn expect_code(ended: &Ended, code: i32) -> Done<()> {
    match ended.code {
        Some(found) if found == code => Ok(()),
        found => Err(Stop::Failed(format!("exit code {found:?}, not {code}: {}", ended.text))),
    }
}
