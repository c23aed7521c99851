//! A gigabyte of output through pinfold, until it is finished and its tail can be read, against `| cat > file`.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Instant;

use anyhow::ensure;
use pinfold_api::input::Size;
use pinfold_api::types::{OutputQuery, StartRequest, WaitQuery, WaitReason};

use super::report::{Row, Target};
use super::stage::{self, Daemon, Stage, settle};
use super::stats::{Better, Samples};
use super::{Scale, bare};

const BYTES: usize = 1 << 30;
const ROUNDS: usize = 7;
const TAIL: usize = 4096;
const MIB: f64 = (1 << 20) as f64;

/// A command that only writes, and how its row is called.
struct Writer {
    id: &'static str,
    id_whole: &'static str,
    what: &'static str,
    command: String,
}

pub(super) fn measure(stage: &Stage, scale: Scale) -> anyhow::Result<Vec<Row>> {
    let bytes = scale.of(BYTES);
    let daemon = stage.daemon("capture")?;
    let mut rows = Vec::new();
    for writer in writers(bytes) {
        let [mut cat, mut kept, mut whole] = [const { Samples::new() }; 3];
        for _ in 0..ROUNDS {
            settle();
            cat.push(to_file(&writer.command, &stage.directory().join("output"), bytes)?);
            settle();
            kept.push(to_pinfold(&daemon, &writer.command, None, bytes)?);
            settle();
            whole.push(to_pinfold(&daemon, &writer.command, Some(Size::Bytes(2 * bytes as u64)), bytes)?);
        }
        let cat = cat.summary(Better::More);
        let (what, baseline) = (writer.what, "the same command `| cat > file`");
        rows.push(
            Row::new(writer.id, format!("capture: {what}"), "MiB/s", kept.summary(Better::More))
                .against(baseline, cat)
                .target(Target::RatioAtLeast(0.8)),
        );
        let label = format!("capture with every byte kept: {what}");
        rows.push(Row::new(writer.id_whole, label, "MiB/s", whole.summary(Better::More)).against(baseline, cat));
    }
    Ok(rows)
}

fn writers(bytes: usize) -> [Writer; 2] {
    let line = "0123456789".repeat(10);
    [
        Writer {
            id: "capture_zeros",
            id_whole: "capture_zeros_whole",
            what: "`head -c 1G /dev/zero`",
            command: format!("head -c {bytes} /dev/zero"),
        },
        Writer {
            id: "capture_lines",
            id_whole: "capture_lines_whole",
            what: "`yes (100-byte line) | head -c 1G`",
            command: format!("yes {} | head -c {bytes}", &line[1..]),
        },
    ]
}

/// MiB/s into a file, until its tail is read.
fn to_file(command: &str, file: &Path, bytes: usize) -> anyhow::Result<f64> {
    let begun = Instant::now();
    bare::run(&format!("{command} | cat > '{}'", file.display()))?;
    let mut written = File::open(file)?;
    let end = written.seek(SeekFrom::End(-(TAIL as i64)))? + TAIL as u64;
    written.read_exact(&mut [0; TAIL])?;
    let elapsed = begun.elapsed();
    std::fs::remove_file(file)?;
    ensure!(end == bytes as u64, "`cat` wrote {end} of {bytes} bytes");
    Ok(bytes as f64 / MIB / elapsed.as_secs_f64())
}

/// MiB/s into pinfold, until it is finished and its tail is read.
fn to_pinfold(daemon: &Daemon, command: &str, output_limit: Option<Size>, bytes: usize) -> anyhow::Result<f64> {
    let (runtime, client) = (stage::runtime()?, daemon.client());
    runtime.block_on(async {
        client.connect().await?;
        let begun = Instant::now();
        let request = StartRequest { command: Some(command.to_owned()), output_limit, ..StartRequest::default() };
        let id = client.start(&request).await?.record.id;
        let until_finished =
            WaitQuery { until: Some("finished".into()), timeout: Some("10m".into()), ..WaitQuery::default() };
        let waited = client.wait(&id, &until_finished).await?;
        let page = client.output(&id, &OutputQuery { tail: Some(TAIL.to_string()), ..OutputQuery::default() }).await?;
        let elapsed = begun.elapsed();
        ensure!(waited.reason == WaitReason::Finished, "not finished: {:?}", waited.reason);
        ensure!(page.end == bytes as u64 && page.shown_bytes == TAIL as u64, "captured {} of {bytes} bytes", page.end);
        Ok(bytes as f64 / MIB / elapsed.as_secs_f64())
    })
}
