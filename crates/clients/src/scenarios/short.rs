//! Commands that end: quickly, slowly, with much output, or with an error.

use super::{Stage, expect_code};
use crate::shells::{Done, Place, Reasons, Stop, read};

/// The model reads the output.
pub(super) fn echo(stage: &mut Stage<'_>) -> Done<()> {
    let ended = stage.run("echo quick")?;
    read(&ended.text, "quick")
}

/// The model reads each output.
pub(super) fn five(stage: &mut Stage<'_>) -> Done<()> {
    for number in 1..=5 {
        let ended = stage.run(&format!("sleep 1; echo step-{number}-done"))?;
        read(&ended.text, &format!("step-{number}-done"))?;
    }
    Ok(())
}

/// The model reads each output in its own result.
pub(super) fn ten(stage: &mut Stage<'_>) -> Done<()> {
    let lines: Vec<String> = (0..10).map(|number| format!("sleep 0.2; echo check-{number}-passed")).collect();
    let results = stage.shell.run_together(stage.chat, &lines)?;
    for (number, ended) in results.iter().enumerate() {
        read(&ended.text, &format!("check-{number}-passed"))?;
    }
    Ok(())
}

/// The command runs in the directory, with the variable.
pub(super) fn place(stage: &mut Stage<'_>) -> Done<()> {
    let place = Place { directory: "sub", variable: ("MODE", "release") };
    let ended = stage.shell.run_in(stage.chat, place, "./show.sh")?;
    read(&ended.text, "mode release in sub")
}

/// The model learns that the command does not exist; the corrected one succeeds.
pub(super) fn typo(stage: &mut Stage<'_>) -> Done<()> {
    let ended = stage.run_for_code("nodee get.js")?;
    expect_code(&ended, 127)?;
    read(&ended.text, "not found")?;
    let ended = stage.run("node --version")?;
    read(&ended.text, "v2")
}

/// The model learns the signal: its name, its number, or a shell's exit code for it.
pub(super) fn signal(stage: &mut Stage<'_>) -> Done<()> {
    let ended = stage.run_for_code("./crash.sh")?;
    let text = &ended.text;
    let learnt = ["SEGV", "Segmentation", "139", "Signal: 11"].iter().any(|word| text.contains(word));
    if learnt { read(text, "working") } else { Err(Stop::Failed(format!("no signal in: {text}"))) }
}

/// The model reads the error, and the second build succeeds.
pub(super) fn build(stage: &mut Stage<'_>) -> Done<()> {
    let ended = stage.run_for_code("./build.sh")?;
    expect_code(&ended, 2)?;
    read(&ended.text, "src/pay.c:3:5: error")?;
    let ended = stage.run_for_code("sed -i s/retrun/return/ src/pay.c && ./build.sh")?;
    expect_code(&ended, 0)?;
    read(&ended.text, "built app")
}

/// The model learns the three names and the exit code.
pub(super) fn tests(stage: &mut Stage<'_>) -> Done<()> {
    let reasons = Reasons { grep: "FAILED", lines: &["case_117", "case_262", "case_431"] };
    learn_reasons(stage, "node tests.js", reasons)
}

/// The model reads the line with the error, and learns the exit code.
pub(super) fn noise(stage: &mut Stage<'_>) -> Done<()> {
    learn_reasons(stage, "node noise.js", Reasons { grep: "error", lines: &["error: unknown type name"] })
}

fn learn_reasons(stage: &mut Stage<'_>, line: &str, reasons: Reasons<'_>) -> Done<()> {
    let ended = stage.shell.run_and_find(stage.chat, line, reasons)?;
    expect_code(&ended, 1)?;
    reasons.lines.iter().try_for_each(|line| read(&ended.text, line))
}

/// The model learns the output and the exit code.
pub(super) fn slow(stage: &mut Stage<'_>) -> Done<()> {
    let ended = stage.run_for_code("node pack.js")?;
    expect_code(&ended, 3)?;
    read(&ended.text, "not packed")
}
