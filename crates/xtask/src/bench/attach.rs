//! Attach: time from a key to its echo, compared with a bare pseudoterminal; fifty observers of one process, compared with one.

use std::ops::Deref;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use pinfold_api::client::{AttachReader, Received};
use pinfold_api::input::Size;
use pinfold_api::types::{AttachNotice, AttachQuery, InputRequest, Pty, StartRequest, Stdin};
use pinfold_testkit::Terminal;

use super::Scale;
use super::report::Row;
use super::stats::{Better, Samples};
use super::test_bed::{self, Daemon, TestDir, settle};

const KEYS: usize = 500;
const OBSERVERS: usize = 50;
const BYTES: usize = 100_000_000;
const RUNS: usize = 3;
/// Echoes every key itself, not by the terminal.
const ECHO: &str = "stty raw -echo; echo ready; exec cat";

pub(super) fn measure(stage: &TestDir, scale: Scale) -> anyhow::Result<Vec<Row>> {
    let mut rows = vec![keystroke(stage, scale)?];
    rows.push(observers(stage, scale)?);
    Ok(rows)
}

fn keystroke(stage: &TestDir, scale: Scale) -> anyhow::Result<Row> {
    let keys = scale.of(KEYS);
    let bare = bare_keys(keys)?;
    let daemon = stage.daemon("keys")?;
    let kept = test_bed::runtime()?.block_on(attached_keys(&daemon, keys))?;
    let row = Row::new("attach_key", "a key to its echo, through attach", "ms", kept.summary(Better::Less));
    Ok(row.against("a bare pseudoterminal", bare.summary(Better::Less)))
}

fn bare_keys(keys: usize) -> anyhow::Result<Samples> {
    let mut terminal = Terminal::start(Command::new("sh").args(["-c", ECHO]), 24, 80)?;
    terminal.until("ready");
    let mut samples = Samples::new();
    for _ in 0..keys {
        let started = Instant::now();
        terminal.write(b"k");
        while !terminal.read().ends_with(b"k") {}
        samples.push_ms(started.elapsed());
    }
    Ok(samples)
}

async fn attached_keys(daemon: &Daemon, keys: usize) -> anyhow::Result<Samples> {
    let client = daemon.client();
    let request =
        StartRequest { command: Some(ECHO.to_owned()), pty: Some(Pty::Wanted(true)), ..StartRequest::default() };
    let id = client.start(&request).await?.record.id;
    let query = AttachQuery { cursor: Some(0), write: Some(true), ..AttachQuery::default() };
    let (mut reader, mut writer) = client.attach(&id, &query).await?;
    let mut said = Vec::new();
    while !String::from_utf8_lossy(&said).contains("ready\n") {
        said.extend_from_slice(&bytes(&mut reader).await?);
    }
    let mut samples = Samples::new();
    for _ in 0..keys {
        let started = Instant::now();
        ensure!(writer.send("k".into()).await, "the connection ended");
        ensure!(*bytes(&mut reader).await? == *b"k", "another echo");
        samples.push_ms(started.elapsed());
    }
    client.stop(&id, &Default::default()).await?;
    Ok(samples)
}

/// The next bytes of output, without a copy that would be measured too.
async fn bytes(reader: &mut AttachReader) -> anyhow::Result<impl Deref<Target = [u8]>> {
    loop {
        match reader.next().await.context("the connection ended")?? {
            Received::Bytes(bytes) => return Ok(bytes),
            Received::Notice(notice) => {
                if let AttachNotice::Gap { .. } = *notice {
                    bail!("a gap");
                }
            }
        }
    }
}

fn observers(stage: &TestDir, scale: Scale) -> anyhow::Result<Row> {
    let daemon = stage.daemon("observers")?;
    let [mut one, mut many] = [const { Samples::new() }; 2];
    for _ in 0..scale.of(RUNS) {
        settle();
        one.push_ms(observed(&daemon, 1, scale.of(BYTES))?);
        settle();
        many.push_ms(observed(&daemon, OBSERVERS, scale.of(BYTES))?);
    }
    let what = "50 observers of 100 MB: from the first byte written to the last one received";
    let row = Row::new("attach_observers", what, "ms", many.summary(Better::Less));
    Ok(row.against("one observer", one.summary(Better::Less)))
}

/// Time until this many observers have received all output of a process.
fn observed(daemon: &Daemon, observers: usize, wanted: usize) -> anyhow::Result<Duration> {
    test_bed::runtime()?.block_on(async {
        let client = daemon.client();
        let request = StartRequest {
            command: Some(format!("read go; exec head -c {wanted} /dev/zero")),
            stdin: Some(Stdin::Pipe),
            output_limit: Some(Size::Bytes(4 * wanted as u64)),
            ..StartRequest::default()
        };
        let id = client.start(&request).await?.record.id;
        let mut reading = tokio::task::JoinSet::new();
        for _ in 0..observers {
            let (mut reader, _writer) = client.attach(&id, &AttachQuery::default()).await?;
            reading.spawn(async move {
                let mut count = 0;
                while count < wanted {
                    count += bytes(&mut reader).await?.len();
                }
                anyhow::Ok(count)
            });
        }
        let started = Instant::now();
        let go = InputRequest { text: Some("\n".to_owned()), ..InputRequest::default() };
        client.input(&id, &go).await?;
        while let Some(count) = reading.join_next().await {
            ensure!(count?? == wanted, "more than was written");
        }
        Ok(started.elapsed())
    })
}
