//! Servers and workers.

use super::{Stage, free_port, is_open};
use crate::shells::{Done, Start, Stop, Until, read};

fn closed(port: u16) -> Done<()> {
    if is_open(port) { Err(Stop::Failed(format!("port {port} is still open"))) } else { Ok(()) }
}

/// The model reads in the log why a request failed; the server is stopped at the end.
pub(super) fn server(stage: &mut Stage<'_>) -> Done<()> {
    let port = free_port();
    let (program, tag) = stage.own("server.js");
    let line = format!("node {program} {port}");
    let job = stage.shell.start(stage.chat, Start { line: &line, tag: &tag }, Until::Says("listening on"))?;
    let ended = stage.run(&format!("node get.js {port} /orders"))?;
    read(&ended.text, "HTTP 500")?;
    let log = stage.shell.read(stage.chat, &job)?;
    read(&log, "total is undefined")?;
    stage.shell.stop(stage.chat, &job)?;
    stage.all_gone()?;
    closed(port)
}

/// A request after the start succeeds.
pub(super) fn port(stage: &mut Stage<'_>) -> Done<()> {
    let port = free_port();
    let (program, tag) = stage.own("server.js");
    let line = format!("node {program} {port} 2000 silent");
    stage.shell.start(stage.chat, Start { line: &line, tag: &tag }, Until::Listens(port))?;
    let ended = stage.run(&format!("node get.js {port} /"))?;
    read(&ended.text, "all is well")
}

/// The model learns the exit code of the worker that crashed.
pub(super) fn crash(stage: &mut Stage<'_>) -> Done<()> {
    let (idle, idle_tag) = stage.own("idle.js");
    let (worker, worker_tag) = stage.own("worker.js");
    let (idle, worker) = (format!("node {idle}"), format!("node {worker}"));
    let starts = [Start { line: &idle, tag: &idle_tag }, Start { line: &worker, tag: &worker_tag }];
    let jobs = stage.shell.start_together(stage.chat, &starts)?;
    stage.shell.learn_of_end(stage.chat, "sleep 3; echo lint passed", &jobs[1], 7).map(drop)
}

/// The server that the script left running is stopped.
pub(super) fn stray(stage: &mut Stage<'_>) -> Done<()> {
    let port = free_port();
    let (program, tag) = stage.own("server.js");
    let line = format!("./start.sh {program} {port}");
    let job = stage.shell.run_leaving(stage.chat, Start { line: &line, tag: &tag }, "started")?;
    pinfold_testkit::until("the server listens", || is_open(port));
    stage.shell.stop(stage.chat, &job)?;
    stage.all_gone()?;
    closed(port)
}

/// The whole tree is stopped.
pub(super) fn stubborn(stage: &mut Stage<'_>) -> Done<()> {
    let (program, tag) = stage.own("stubborn.sh");
    let line = format!("./{program}");
    let job = stage.shell.start(stage.chat, Start { line: &line, tag: &tag }, Until::Says("running"))?;
    stage.shell.stop(stage.chat, &job)?;
    stage.all_gone()
}

/// After the client was killed and resumed, the server still responds, and the model can stop it.
pub(super) fn resume(stage: &mut Stage<'_>) -> Done<()> {
    let port = free_port();
    let (program, tag) = stage.own("server.js");
    let line = format!("node {program} {port}");
    let job = stage.shell.start(stage.chat, Start { line: &line, tag: &tag }, Until::Says("listening on"))?;
    stage.chat.kill_and_resume();
    let ended = stage.shell.run_after_resume(stage.chat, &format!("node get.js {port} /"), &job)?;
    if !ended.text.contains("all is well") {
        return Err(Stop::Cannot("the server ends with the client"));
    }
    stage.shell.stop(stage.chat, &job)?;
    stage.all_gone()?;
    closed(port)
}
