//! pinfold itself, through its client, and the baseline without any tool.

use std::cell::RefCell;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, ensure};
use pinfold_api::client::Client;
use pinfold_api::types::{Outcome, OutputQuery, Record, StartRequest, WaitQuery};
use tokio::runtime::Runtime;

use super::peer::{Peer, ToolDir, file_tail};
use crate::bench::test_bed::runtime;

#[derive(Debug)]
pub(super) struct Pinfold {
    pub(super) den: ToolDir,
    pub(super) binary: PathBuf,
    /// Number of the daemon, starting with 1: connections of a client to an earlier daemon are dead.
    pub(super) boots: AtomicU32,
}

impl Pinfold {
    fn home(&self) -> PathBuf {
        self.den.directory.join("home")
    }

    /// One connection for each thread, as each client has its own.
    fn ask<T, F: Future<Output = Result<T, pinfold_api::client::ClientError>>>(
        &self,
        question: impl FnOnce(Client) -> F,
    ) -> anyhow::Result<T> {
        thread_local! {
            static CLIENT: RefCell<Option<(u32, Runtime, Client)>> = const { RefCell::new(None) };
        }
        let boots = self.boots.load(Ordering::Relaxed);
        CLIENT.with_borrow_mut(|kept| {
            if kept.as_ref().is_none_or(|(of, ..)| *of != boots) {
                *kept = Some((boots, runtime()?, Client::new(self.home().join("socket"))));
            }
            let (_, runtime, client) = kept.as_ref().context("no client")?;
            Ok(runtime.block_on(question(client.clone()))?)
        })
    }
}

impl Peer for Pinfold {
    fn name(&self) -> &'static str {
        "pinfold"
    }

    fn boot(&self) -> anyhow::Result<()> {
        let mut start = self.den.command(&self.binary);
        let status = start.args(["daemon", "start"]).env("PINFOLD_HOME", self.home()).stdout(Stdio::null()).status()?;
        ensure!(status.success(), "the daemon does not start");
        self.boots.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn start(&self, script: &str) -> anyhow::Result<String> {
        let request = StartRequest { command: Some(script.to_owned()), ..StartRequest::default() };
        self.ask(async |client| client.start(&request).await).map(|started| started.record.id)
    }

    fn wait(&self, job: &str) -> anyhow::Result<Option<i32>> {
        let query = WaitQuery { until: Some("exit".into()), timeout: Some("60s".into()), ..WaitQuery::default() };
        let record: Record = self.ask(async |client| client.wait(job, &query).await)?.record;
        Ok(match record.outcome {
            Some(Outcome::Exited { code }) => Some(code.into()),
            _ => None,
        })
    }

    fn tail(&self, job: &str) -> anyhow::Result<String> {
        let query = OutputQuery { tail: Some("4096".into()), ..OutputQuery::default() };
        Ok(self.ask(async |client| client.output(job, &query).await)?.text)
    }

    fn stop(&self, job: &str) -> anyhow::Result<()> {
        self.ask(async |client| client.stop(job, &Default::default()).await).map(drop)
    }

    fn server(&self) -> Option<&'static str> {
        Some("daemon run")
    }
}

/// `posix_spawn` and `waitpid` with output to a file: the minimum that every tool does.
#[derive(Debug)]
pub(super) struct Bare {
    pub(super) den: ToolDir,
}

impl Bare {
    /// One for each thread.
    fn output(&self) -> PathBuf {
        self.den.directory.join(format!("{:?}", std::thread::current().id()))
    }
}

impl Peer for Bare {
    fn name(&self) -> &'static str {
        "bare spawn"
    }

    fn boot(&self) -> anyhow::Result<()> {
        Ok(())
    }

    fn start(&self, script: &str) -> anyhow::Result<String> {
        Ok(script.to_owned())
    }

    fn wait(&self, script: &str) -> anyhow::Result<Option<i32>> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdin(Stdio::null()).stderr(Stdio::null());
        Ok(command.stdout(std::fs::File::create(self.output())?).status()?.code())
    }

    fn tail(&self, _job: &str) -> anyhow::Result<String> {
        file_tail(&self.output())
    }

    fn stop(&self, _job: &str) -> anyhow::Result<()> {
        Ok(())
    }

    fn server(&self) -> Option<&'static str> {
        None
    }
}
