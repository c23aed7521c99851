//! Compares pinfold with other tools: the same work in the same run, alternating.
//!
//! Owns the list of tools and the order of the work. A tool that cannot be installed is skipped; a failure is reported with the
//! tool's own error. Every process that a tool starts has a mark in its environment and is killed at the end.

mod bridged;
mod chart;
mod install;
mod mcp_servers;
mod peer;
mod pinfold;
mod queues;
mod runners;
mod table;
mod tmux;
mod wire;
mod work;

use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use super::Scale;
use super::machine::Machine;
use super::stats::Summary;
use super::test_bed::TestDir;
use install::Source;
pub(super) use peer::marks_of_this_run;
use peer::{Peer, ToolDir};

/// A tool and its results.
pub(super) struct Measured {
    tool: Box<dyn Peer>,
    den: ToolDir,
    /// Start → exit → result, in ms.
    single: Option<Summary>,
    /// Runs per second of sixteen clients.
    sixteen: Option<Summary>,
    /// MB/s.
    capture: Option<Summary>,
    /// MiB at rest, with 100 and with 500 running.
    memory: [Option<f64>; 3],
    crash: Option<work::AfterCrash>,
    survivors: Option<usize>,
    /// Why it is not measured further.
    broken: Option<String>,
    remarks: Vec<String>,
}

/// The results of all tools.
pub(super) struct Comparison {
    measured: Vec<Measured>,
    skipped: Vec<(&'static str, String)>,
}

type Make = fn(ToolDir, std::path::PathBuf) -> Box<dyn Peer>;

/// The tools and their sources.
const TOOLS: &[(&str, Source, Make)] = &[
    ("nq", Source::Debian("nq"), |den, programs| Box::new(queues::Nq { den, programs })),
    ("task-spooler", Source::Debian("task-spooler"), |den, programs| Box::new(queues::TaskSpooler { den, programs })),
    ("tmux", Source::Debian("tmux"), |den, programs| Box::new(tmux::Tmux { den, programs })),
    ("pueue", Source::Rust("pueue"), |den, programs| Box::new(queues::Pueue { den, programs })),
    ("agent-procs", Source::Rust("agent-procs"), |den, programs| {
        Box::new(runners::AgentProcs { den, programs, session: 0.into() })
    }),
    ("shep", Source::Rust("shep"), |den, programs| Box::new(runners::Shep { den, programs })),
    ("supervisor", Source::Python("supervisor"), |den, programs| {
        Box::new(bridged::Bridged::new(bridged::Kind::Supervisor, den, programs))
    }),
    ("pm2", Source::Npm("pm2"), |den, programs| Box::new(bridged::Bridged::new(bridged::Kind::Pm2, den, programs))),
    ("hermes", Source::Python("hermes-agent"), |den, programs| {
        Box::new(bridged::Bridged::new(bridged::Kind::Hermes, den, programs))
    }),
    ("desktop-commander", Source::Npm("@wonderwhy-er/desktop-commander"), |den, programs| {
        Box::new(mcp_servers::McpServer::new(mcp_servers::Kind::DesktopCommander, den, programs))
    }),
    ("mcp-background-job", Source::Python("mcp-background-job"), |den, programs| {
        Box::new(mcp_servers::McpServer::new(mcp_servers::Kind::BackgroundJob, den, programs))
    }),
];

/// Installs, measures, and stops everything.
pub(super) fn measure(stage: &TestDir, scale: Scale, only: &[String]) -> anyhow::Result<Comparison> {
    let place = crate::external::clients::place()?.with_file_name("peers");
    let dens = stage.directory().join("peers");
    let mut measured = vec![
        Measured::new(&dens, "bare", |den| Box::new(pinfold::Bare { den }))?,
        Measured::new(&dens, "pinfold", |den| {
            Box::new(pinfold::Pinfold { den, binary: stage.binary().to_owned(), boots: 0.into() })
        })?,
    ];
    let mut skipped = Vec::new();
    for (name, source, make) in TOOLS {
        if !only.is_empty() && !only.iter().any(|wanted| wanted == name) {
            continue;
        }
        match source.install(&place) {
            Ok(programs) => measured.push(Measured::new(&dens, name, |den| make(den, programs))?),
            Err(reason) => skipped.push((*name, format!("cannot be installed: {reason:#}"))),
        }
    }
    for peer in &mut measured {
        if let Err(error) = peer.tool.boot() {
            peer.fails("its start", &error);
        }
    }
    for (what, work) in [
        ("single", work::single as fn(&mut [Measured], Scale)),
        ("sixteen", work::sixteen),
        ("capture", work::capture),
        ("memory", work::memory),
        ("crash", |peers, _| work::crash(peers)),
        ("escapes", |peers, _| work::escapes(peers)),
    ] {
        eprintln!("bench: peers: {what} …");
        work(&mut measured, scale);
    }
    for peer in &measured {
        peer.den.clear().with_context(|| format!("{} is left running", peer.tool.name()))?;
    }
    Ok(Comparison { measured, skipped })
}

impl Measured {
    fn new(dens: &Path, name: &str, make: impl FnOnce(ToolDir) -> Box<dyn Peer>) -> anyhow::Result<Self> {
        let den = ToolDir::make(dens, name)?;
        let tool = make(den.clone());
        let (single, sixteen, capture, memory, crash) = (None, None, None, [None; 3], None);
        Ok(Measured {
            tool,
            den,
            single,
            sixteen,
            capture,
            memory,
            crash,
            survivors: None,
            broken: None,
            remarks: vec![],
        })
    }

    /// Whether it is the bare baseline, which keeps nothing.
    fn keeps_nothing(&self) -> bool {
        self.tool.name() == "bare spawn"
    }

    fn fails(&mut self, at: &str, error: &anyhow::Error) {
        eprintln!("bench: {} fails at {at}: {error:#}", self.tool.name());
        self.broken = Some(format!("{at}: {error:#}"));
    }

    fn remark(&mut self, remark: String) {
        eprintln!("bench: {}: {remark}", self.tool.name());
        self.remarks.push(remark);
    }

    /// Kills all its processes and starts it again.
    fn revive(&mut self) {
        if self.broken.is_some() {
            return;
        }
        let cleared = self.den.clear();
        self.tool.reset();
        if let Err(error) = cleared.and_then(|()| self.tool.boot()) {
            self.fails("its next start", &error);
        }
    }
}

impl Comparison {
    pub(super) fn render(&self, machine: &Machine) -> String {
        table::render(self, machine)
    }

    pub(super) fn chart(&self) -> String {
        chart::svg(&self.measured)
    }

    pub(super) fn to_json(&self, machine: &Machine) -> Value {
        table::to_json(self, machine)
    }
}
