//! A record for tests.

use pinfold_api::types::{Lifetime, OutputSummary, Record, Status, Stdin, TreeMember, Usage};

/// The current time in tests.
pub(crate) fn now() -> jiff::Timestamp {
    "2026-01-01T01:00:00Z".parse().expect("a time")
}

/// `npm run dev`, running for five minutes with one child.
pub(crate) fn record() -> Record {
    Record {
        id: "k3v9x2".into(),
        name: Some("web".into()),
        command: "npm run dev".into(),
        shell: Some("/bin/sh".into()),
        cwd: "/srv/app".into(),
        owner: "chat-7".into(),
        parent: None,
        lifetime: Lifetime::Keep,
        intent: None,
        notify: None,
        labels: [("team".to_owned(), "ui".to_owned())].into(),
        stdin: Stdin::Null,
        pty: None,
        waiting_for_input: Some(false),
        status: Status::Running,
        paused: false,
        pid: Some(4711),
        created_at: "2026-01-01T00:55:00Z".into(),
        started_at: Some("2026-01-01T00:55:00Z".into()),
        exited_at: None,
        finished_at: None,
        outcome: None,
        cause: None,
        stopped_by: None,
        tree: vec![member(4711, 1, "npm", &[]), member(4713, 4711, "node vite", &[3000, 3001])],
        output: OutputSummary { bytes: 3120, ..Default::default() },
        usage: Usage { cpu_ms: 830, max_rss_bytes: 91_000_000, processes: 3 },
        sample: None,
        traceparent: None,
        tool: None,
        request: None,
        limits: None,
        sandbox: None,
        ready: None,
        life: None,
        ports: Default::default(),
        note: None,
    }
}

/// One living process.
pub(crate) fn member(pid: u32, ppid: u32, command: &str, ports: &[u16]) -> TreeMember {
    TreeMember {
        pid,
        ppid,
        command: command.into(),
        state: "S".into(),
        cpu_ms: 812,
        rss_bytes: 90_112_000,
        ports: ports.to_vec(),
    }
}
