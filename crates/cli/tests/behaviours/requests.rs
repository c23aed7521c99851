//! Requests as agents send them: with a wait, abandoned midway, with and without cgroups, by an ordinary user.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use pinfold_api::types::{Record, SignalAnswer, SignalRequest, StartRequest, Started, WaitQuery, WaitReason};
use pinfold_testkit::{DEADLINE, Pinfold, Setup, until_some};
use serde::Serialize;

use crate::PINFOLD;

/// Runs a test twice: with a cgroup, if there is one, and without.
pub(crate) fn both_ways(scene: impl Fn(&Pinfold)) {
    scene(&Pinfold::start(PINFOLD));
    scene(&Pinfold::start_without_cgroup(PINFOLD));
}

/// Whether the tests run as root, so that a daemon can run as another user.
pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").expect("/proc").uid() == 0
}

/// A daemon of an ordinary user: of `nobody` if the tests run as root, else our own.
pub(crate) fn ordinary_user() -> Pinfold {
    let env = vec![("HOME".to_owned(), "/".to_owned())];
    Pinfold::start_with(PINFOLD, Setup { user: is_root().then_some(65534), env, ..Setup::default() })
}

/// A request for a shell command.
pub(crate) fn request(command: &str) -> StartRequest {
    StartRequest { command: Some(command.into()), ..StartRequest::default() }
}

/// A request for a program without a shell.
pub(crate) fn program(argv: &[&str]) -> StartRequest {
    StartRequest { argv: Some(argv.iter().map(|&word| word.to_owned()).collect()), ..StartRequest::default() }
}

/// Runs a command in the foreground: the response comes when the leader exits or the wait ends.
pub(crate) fn call(pinfold: &Pinfold, command: &str, wait: &str) -> Started {
    pinfold.start_request(&StartRequest { wait: Some(wait.into()), ..request(command) })
}

/// Why the wait of a request ended.
pub(crate) fn reason(started: &Started) -> WaitReason {
    started.waited.as_ref().expect("a call that waited").reason
}

/// The output in the response to a start.
pub(crate) fn said(started: &Started) -> &str {
    &started.output_page.as_ref().expect("a call that waited").text
}

/// Waits until a line of output matches.
pub(crate) fn until_said(pinfold: &Pinfold, id: &str, pattern: &str) -> Record {
    let (until, timeout) = (Some("match".into()), Some("60s".into()));
    let query = WaitQuery { until, timeout, pattern: Some(pattern.into()), ..WaitQuery::default() };
    let answer = pinfold.wait(id, &query);
    assert_eq!(answer.reason, WaitReason::Matched, "`{pattern}` in {:?}", pinfold.text(id));
    answer.record
}

/// Starts a command and waits until it says `ready`.
pub(crate) fn ready(pinfold: &Pinfold, request: &StartRequest) -> Record {
    let record = pinfold.start_request(request).record;
    until_said(pinfold, &record.id, "^ready$")
}

/// Sends a signal; returns the whole response.
pub(crate) fn send(pinfold: &Pinfold, id: &str, signal: &str) -> SignalAnswer {
    let request = SignalRequest { signal: signal.into(), ..SignalRequest::default() };
    pinfold.block(pinfold.client().signal(id, &request)).expect("a signal sent")
}

/// Waits until a tree consists of exactly this many `sleep 300`; returns their pids.
pub(crate) fn until_sleepers(pinfold: &Pinfold, id: &str, count: usize) -> Vec<u32> {
    until_some(&format!("{count} sleepers in {id}"), || {
        let tree = pinfold.show(id).tree;
        let there = tree.len() == count && tree.iter().all(|member| member.command == "sleep 300");
        there.then(|| tree.iter().map(|member| member.pid).collect())
    })
}

/// A file that a command waits for until the test creates it.
#[derive(Debug)]
pub(crate) struct Gate(PathBuf);

impl Gate {
    pub(crate) fn new(pinfold: &Pinfold, name: &str) -> Self {
        Self(pinfold.home().join(name))
    }

    /// Shell code that waits for the file.
    pub(crate) fn wait(&self) -> String {
        format!("until [ -e {} ]; do sleep 0.1; done", self.0.display())
    }

    pub(crate) fn open(&self) {
        std::fs::write(&self.0, "").expect("an open gate");
    }
}

/// Sends a request and does not read the response.
pub(crate) fn post(pinfold: &Pinfold, path: &str, body: &impl Serialize) -> UnixStream {
    let body = serde_json::to_string(body).expect("JSON");
    let mut stream = UnixStream::connect(pinfold.home().join("socket")).expect("a connection");
    let head = format!("POST {path} HTTP/1.1\r\nhost: pinfold\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all((head + &body).as_bytes()).expect("a request sent");
    stream
}

/// Abandons an open request; returns when the daemon has closed it, without a response.
pub(crate) fn leave(mut stream: UnixStream) {
    stream.shutdown(Shutdown::Write).expect("our end is closed");
    stream.set_read_timeout(Some(DEADLINE)).expect("a deadline");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the daemon closes its end too");
    assert_eq!(String::from_utf8_lossy(&answer), "", "an answer to a request that was still open");
}
