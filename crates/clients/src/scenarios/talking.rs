//! Programs that keep writing or ask for input: watchers, logs, questions, interpreters.

use super::Stage;
use crate::shells::{Done, Start, Stop, Until, read};

/// The model reads the error of the second build, then that the third has none; the watcher is stopped at the end.
pub(super) fn watch(stage: &mut Stage<'_>) -> Done<()> {
    let (program, tag) = stage.own("watch.js");
    let line = format!("node {program}");
    let job = stage.shell.start(stage.chat, Start { line: &line, tag: &tag }, Until::Says("build 1:"))?;
    let shell = &mut stage.shell;
    let text = shell.do_and_await(stage.chat, "echo 'console.log(totl)' > watched.ts", &job, "build 2:")?;
    read(&text, "Cannot find name")?;
    let text = shell.do_and_await(stage.chat, "echo 'console.log(sum)' > watched.ts", &job, "build 3:")?;
    read(&text, "found 0 errors")?;
    shell.stop(stage.chat, &job)?;
    stage.all_gone()
}

/// The model reads the line; the program is stopped at the end.
pub(super) fn search(stage: &mut Stage<'_>) -> Done<()> {
    let (program, tag) = stage.own("batch.js");
    let line = format!("node {program}");
    let job = stage.shell.start_logging(stage.chat, Start { line: &line, tag: &tag }, "all orders queued")?;
    let text = stage.shell.find(stage.chat, &job, "order 4711 ")?;
    read(&text, "card expired")?;
    stage.shell.stop(stage.chat, &job)?;
    stage.all_gone()
}

/// The model reads the question, and its answer is accepted.
pub(super) fn question(stage: &mut Stage<'_>) -> Done<()> {
    let (program, tag) = stage.own("ask.sh");
    let line = format!("./{program}");
    let job = stage.shell.start(stage.chat, Start { line: &line, tag: &tag }, Until::Asks("type code-"))?;
    let code = job.first.split("type ").nth(1).and_then(|rest| rest.split(' ').next());
    let code = code.ok_or_else(|| Stop::Failed(format!("no code in: {}", job.first)))?.to_owned();
    let text = stage.shell.answer(stage.chat, &job, &code, "deleted branch")?;
    read(&text, "deleted branch old")
}

/// The second line uses a variable of the first.
pub(super) fn repl(stage: &mut Stage<'_>) -> Done<()> {
    let tag = format!("repl-{}", stage.tag);
    let line = format!("env NODE_NO_READLINE=1 node --title={tag} -i");
    let job = stage.shell.start(stage.chat, Start { line: &line, tag: &tag }, Until::Asks("for more information"))?;
    stage.shell.answer(stage.chat, &job, "const rate = 7", "undefined")?;
    let text = stage.shell.answer(stage.chat, &job, "rate * 17", "119")?;
    read(&text, "119")?;
    stage.shell.answer(stage.chat, &job, "rate * 100 + 19", "719").and_then(|text| read(&text, "719"))
}
