//! Captures a gigabyte of output until the process has finished and the tail can be read, compared with `| cat > file`.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, ensure};
use pinfold_api::input::{Size, Span};
use pinfold_api::types::{GcRequest, OutputQuery, StartRequest, WaitQuery, WaitReason};

use super::report::{Row, Target};
use super::stats::{Better, Samples};
use super::test_bed::{self, Daemon, TestDir, settle};
use super::{Scale, bare};

const BYTES: usize = 1 << 30;
const ROUNDS: usize = 7;
const TAIL: usize = 4096;
const MIB: f64 = (1 << 20) as f64;

/// A command that only writes, how much of its output is kept, and the name of its row.
struct Case {
    id: &'static str,
    what: String,
    command: String,
    output_limit: Option<Size>,
    target: Option<Target>,
}

pub(super) fn measure(stage: &TestDir, scale: Scale) -> anyhow::Result<Vec<Row>> {
    let bytes = scale.of(BYTES);
    let daemon = stage.daemon("capture")?;
    let file = stage.directory().join("output");
    let mut rows = Vec::new();
    for case in cases(bytes) {
        let [mut cat, mut kept] = [const { Samples::new() }; 2];
        for round in 0..ROUNDS {
            // Alternate which one is first: the first has colder memory.
            for turn in 0..2 {
                written_back(stage.directory())?;
                if (round + turn) % 2 == 0 {
                    cat.push(to_file(&case.command, &file, bytes)?);
                } else {
                    kept.push(to_pinfold(&daemon, &case, bytes)?);
                }
            }
        }
        let row = Row::new(case.id, case.what, "MiB/s", kept.summary(Better::More));
        let row = row.against("the same command `| cat > file`", cat.summary(Better::More));
        rows.push(Row { target: case.target, ..row });
    }
    Ok(rows)
}

fn cases(bytes: usize) -> [Case; 4] {
    // With its newline a hundred bytes.
    let line = &"0123456789".repeat(10)[1..];
    let mib = bytes >> 20;
    let zeros = (format!("`head -c {mib}M /dev/zero`"), format!("head -c {bytes} /dev/zero"));
    let lines = (format!("`yes (100-byte line) | head -c {mib}M`"), format!("yes {line} | head -c {bytes}"));
    let bounded = |id, (what, command): &(String, String)| Case {
        id,
        what: format!("capture: {what}"),
        command: command.clone(),
        output_limit: None,
        target: Some(Target::RatioAtLeast(0.95)),
    };
    let whole = |id, (what, command): &(String, String)| Case {
        id,
        what: format!("capture with every byte kept: {what}"),
        command: command.clone(),
        output_limit: Some(Size::Bytes(4 * bytes as u64)),
        target: None,
    };
    [
        bounded("capture_zeros", &zeros),
        bounded("capture_lines", &lines),
        whole("capture_zeros_whole", &zeros),
        whole("capture_lines_whole", &lines),
    ]
}

/// Waits until the filesystem has written everything, so that no run pays for another's writes.
fn written_back(directory: &Path) -> anyhow::Result<()> {
    settle();
    let status = Command::new("sync").arg("--file-system").arg(directory).status().context("cannot run sync")?;
    ensure!(status.success(), "sync ended with {status}");
    Ok(())
}

/// MiB/s to a file, until its tail is read.
fn to_file(command: &str, file: &Path, bytes: usize) -> anyhow::Result<f64> {
    let started = Instant::now();
    bare::run(&format!("{command} | cat > '{}'", file.display()))?;
    let mut written = File::open(file)?;
    let end = written.seek(SeekFrom::End(-(TAIL as i64)))? + TAIL as u64;
    written.read_exact(&mut [0; TAIL])?;
    let elapsed = started.elapsed();
    std::fs::remove_file(file)?;
    ensure!(end == bytes as u64, "`cat` wrote {end} of {bytes} bytes");
    Ok(bytes as f64 / MIB / elapsed.as_secs_f64())
}

/// MiB/s to pinfold, until the process has finished and its tail is read.
fn to_pinfold(daemon: &Daemon, case: &Case, bytes: usize) -> anyhow::Result<f64> {
    let (runtime, client) = (test_bed::runtime()?, daemon.client());
    runtime.block_on(async {
        client.connect().await?;
        let (command, output_limit) = (Some(case.command.clone()), case.output_limit.clone());
        let request = StartRequest { command, output_limit, ..StartRequest::default() };
        let started = Instant::now();
        let id = client.start(&request).await?.record.id;
        let until_finished =
            WaitQuery { until: Some("finished".into()), timeout: Some("10m".into()), ..WaitQuery::default() };
        let waited = client.wait(&id, &until_finished).await?;
        let page = client.output(&id, &OutputQuery { tail: Some(TAIL.to_string()), ..OutputQuery::default() }).await?;
        let elapsed = started.elapsed();
        ensure!(waited.reason == WaitReason::Finished, "not finished: {:?}", waited.reason);
        ensure!(page.end == bytes as u64 && page.shown_bytes == TAIL as u64, "captured {} of {bytes} bytes", page.end);
        client.gc(&GcRequest { older_than: Some(Span::Seconds(0.0)), dry_run: false }).await?;
        Ok(bytes as f64 / MIB / elapsed.as_secs_f64())
    })
}
