//! What people look at, with many processes: the first screen of `pinfold top`, what the dashboard asks for at first, a log
//! opened in the middle, and the CPU time while somebody looks and while nobody does.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use pinfold_api::types::{AgentListQuery, InboxQuery, ListQuery, OutputQuery};
use pinfold_testkit::{Terminal, cpu_ms};

use super::Scale;
use super::report::{Row, Target};
use super::stats::{Better, Samples, Summary};
use super::test_bed::{self, Daemon, TestDir, settle};

const RUNNING: usize = 1_000;
const FINISHED: usize = 10_000;
const SCREENS: usize = 20;
/// How long CPU time is counted.
const LOOKING: Duration = Duration::from_secs(10);
/// The log, and how much of it a window reads.
const LOG_MIB: u64 = 64;
const WINDOW: &str = "256k";
/// The size of the terminal.
const SIZE: (u16, u16) = (50, 160);

pub(super) fn measure(stage: &TestDir, scale: Scale) -> anyhow::Result<Vec<Row>> {
    let daemon = stage.daemon("views")?;
    let (running, finished) = (scale.of(RUNNING), scale.of(FINISHED));
    daemon.start_many(finished, &test_bed::shell_true())?;
    daemon.start_many(running, &test_bed::sleeper())?;
    let store = format!("with {running} running and {finished} finished");
    let mut rows = first_screens(&daemon, scale, &store)?;
    rows.push(log_in_the_middle(&daemon, scale)?);
    rows.extend(cpu(&daemon, &store)?);
    Ok(rows)
}

fn on_terminal(daemon: &Daemon, command: &str) -> anyhow::Result<Terminal> {
    let mut program = Command::new(daemon.binary());
    program.arg(command).env("PINFOLD_HOME", daemon.home()).env("TERM", "xterm-256color");
    Terminal::start(&mut program, SIZE.0, SIZE.1).context("no terminal")
}

/// `top` until it shows processes, beside `ps`; and the dashboard's first requests.
fn first_screens(daemon: &Daemon, scale: Scale, store: &str) -> anyhow::Result<Vec<Row>> {
    let runtime = test_bed::runtime()?;
    let client = daemon.client();
    let (mut top, mut ps, mut dashboard) = (Samples::default(), Samples::default(), Samples::default());
    for _ in 0..scale.of(SCREENS) {
        settle();
        let begin = Instant::now();
        let mut screen = on_terminal(daemon, "top")?;
        screen.until("sleep 1000");
        top.push_ms(begin.elapsed());
        screen.write(b"q");
        ensure!(screen.wait().success(), "top failed");
        settle();
        let begin = Instant::now();
        let mut list = on_terminal(daemon, "ps")?;
        list.until("sleep 1000");
        ps.push_ms(begin.elapsed());
        ensure!(list.wait().success(), "ps failed");
        settle();
        let begin = Instant::now();
        runtime.block_on(async {
            let live = ListQuery {
                status: Some("live".into()),
                usage: Some(true),
                tree: Some(false),
                limit: Some(2000),
                ..ListQuery::default()
            };
            let ended = ListQuery { status: Some("ended".into()), limit: Some(50), ..ListQuery::default() };
            tokio::try_join!(client.list(&live), client.list(&ended))?;
            client.inbox(&InboxQuery::default()).await?;
            client.agents(&AgentListQuery::default()).await
        })?;
        dashboard.push_ms(begin.elapsed());
    }
    let ps = ps.summary(Better::Less);
    let against = |row: Row| row.against("`pinfold ps` there", ps).target(Target::AtMost(300.0));
    Ok(vec![
        against(Row::new("top_first", format!("first screen of `top` {store}"), "ms", top.summary(Better::Less))),
        against(Row::new(
            "dashboard_first",
            format!("what the dashboard asks for at first {store}"),
            "ms",
            dashboard.summary(Better::Less),
        )),
    ])
}

/// A window of a long log, from the middle and from the beginning.
fn log_in_the_middle(daemon: &Daemon, scale: Scale) -> anyhow::Result<Row> {
    let runtime = test_bed::runtime()?;
    let client = daemon.client();
    let mib = LOG_MIB - 1;
    let request = pinfold_api::types::StartRequest {
        command: Some(format!("seq 1 20000000 | head -c {}", mib << 20)),
        wait: Some("10m".into()),
        ..Default::default()
    };
    let id = runtime.block_on(client.start(&request))?.record.id;
    let (mut middle, mut beginning) = (Samples::default(), Samples::default());
    for _ in 0..scale.of(SCREENS * 5) {
        for (samples, cursor) in [(&mut middle, mib << 19), (&mut beginning, 0)] {
            let query = OutputQuery { cursor: Some(cursor), max_bytes: Some(WINDOW.into()), ..OutputQuery::default() };
            let page = samples.time(|| runtime.block_on(client.output_raw(&id, &query)))?;
            ensure!(page.cursor == cursor && page.bytes.len() == 256 << 10, "a window of {}", page.bytes.len());
        }
    }
    Ok(Row::new(
        "log_middle",
        format!("{WINDOW} from the middle of a log of {mib} MiB"),
        "ms",
        middle.summary(Better::Less),
    )
    .against("from its beginning", beginning.summary(Better::Less))
    .target(Target::AtMost(200.0)))
}

/// Percent of one core: daemon and `top` while it is looked at, and the daemon while nobody looks.
fn cpu(daemon: &Daemon, store: &str) -> anyhow::Result<Vec<Row>> {
    settle();
    let idle = percent(|| Ok(cpu_ms(daemon.pid())), || std::thread::sleep(LOOKING))?;
    let mut screen = on_terminal(daemon, "top")?;
    screen.until("sleep 1000");
    let pids = [daemon.pid(), screen.pid()];
    let looking = percent(
        || Ok(pids.into_iter().map(cpu_ms).sum()),
        || {
            let end = Instant::now() + LOOKING;
            while Instant::now() < end && !screen.read().is_empty() {
                screen.forget();
            }
        },
    )?;
    screen.write(b"q");
    ensure!(screen.wait().success(), "top failed");
    let row = |id, what: String, value, most| {
        Row::new(id, what, "% of a core", Summary::of_one(value)).target(Target::AtMost(most))
    };
    Ok(vec![
        row("cpu_looking", format!("daemon and `top` {store}"), looking, 15.0),
        row("cpu_unwatched", format!("daemon {store}, nobody looks"), idle, 0.5),
    ])
}

fn percent(cpu: impl Fn() -> anyhow::Result<u64>, act: impl FnOnce()) -> anyhow::Result<f64> {
    let (before, begin) = (cpu()?, Instant::now());
    act();
    Ok((cpu()? - before) as f64 / begin.elapsed().as_secs_f64() / 10.0)
}
