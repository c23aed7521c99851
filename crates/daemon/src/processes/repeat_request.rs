//! From a spec back to a start request: what a client sends to start the same command with the same options again.
//!
//! The reverse of [`super::start_request::parse`]. Must not include environment values (the spec of a record has none) or the
//! address of a webhook, of which clients see only the host.

use std::sync::Arc;
use std::time::Duration;

use pinfold_api::input::{Size, Span};
use pinfold_api::types::{self, Port, Pty, Record, RestartPolicy, StartRequest};
use pinfold_model::facts::History;
use pinfold_model::notify::Notify;
use pinfold_model::ready::{LoopbackHost, Ready, ReadyBy, ReadyPort};
use pinfold_model::restart::{Restart, When};
use pinfold_model::sandbox::SandboxRequest;
use pinfold_model::spec::{Program, Stdin, Streams};

use crate::core::Core;
use crate::registry::FoundProcess;
use crate::request_error::RequestError;

impl Core {
    /// The record of one process, with the request that repeats it.
    pub(crate) async fn record_with_request(self: &Arc<Self>, found: &FoundProcess) -> Result<Record, RequestError> {
        let mut record = self.record_with_last_line(found).await?;
        record.request = Some(Box::new(render(&found.snapshot().history)));
        Ok(record)
    }
}

/// The request that repeats a process, for its present owner. Its leased ports are requested by number: the spec does not say
/// which of them could have been any.
fn render(history: &History) -> StartRequest {
    let spec = &history.intent.spec;
    let (command, argv, shell) = match &spec.program {
        Program::Shell { shell, script } => (Some(script.clone()), None, Some(shell.clone())),
        Program::Argv { argv } => (None, Some(argv.clone()), None),
    };
    StartRequest {
        command,
        argv,
        shell,
        cwd: spec.cwd.to_str().map(str::to_owned),
        owner: Some(history.owner().to_owned()),
        lifetime: Some(spec.lifetime.into()),
        owner_grace: spec.lifetime.grace().map(span),
        name: spec.name.clone(),
        intent: spec.intent.clone(),
        labels: spec.labels.clone(),
        // A terminal has all three streams: a request with `pty` must not set the others.
        streams: (spec.streams == Streams::Separate).then_some(spec.streams),
        stdin: (spec.stdin == Stdin::Pipe).then_some(spec.stdin),
        pty: spec.pty.map(Pty::Sized),
        strays: Some(spec.strays),
        stop_signal: Some(spec.stop.signal.name()),
        grace: Some(span(spec.stop.grace)),
        time_limit: spec.time_limit.map(span),
        idle_limit: spec.idle_limit.map(span),
        memory_limit: spec.limits.memory.map(Size::Bytes),
        pids_limit: spec.limits.pids,
        cpus: spec.limits.millicpus.map(|thousandths| f64::from(thousandths) / 1000.0),
        cpu_time_limit: spec.limits.cpu_time.map(span),
        notify: (spec.notify != Notify::default()).then(|| render_notify(&spec.notify)),
        ready: spec.service.ready.as_ref().map(render_ready),
        restart: spec.service.restart.as_ref().map(render_restart),
        ports: spec.service.ports.iter().map(|(name, port)| (name.clone(), render_lease(*port))).collect(),
        sandbox: spec.sandbox.as_ref().map(|sandbox| SandboxRequest::Parts((&sandbox.asked).into())),
        output_limit: Some(Size::Bytes(spec.output_limit)),
        ..StartRequest::default()
    }
}

fn span(duration: Duration) -> Span {
    Span::Seconds(duration.as_secs_f64())
}

fn render_lease(port: Option<u16>) -> Port {
    port.map_or_else(|| Port::from("lease"), |port| Port::Number(u64::from(port)))
}

fn render_notify(notify: &Notify) -> types::Notify {
    types::Notify {
        on_complete: Some(notify.on_complete),
        patterns: notify.patterns.clone(),
        exclude: notify.exclude.clone(),
        cooldown: Some(span(notify.cooldown)),
        max_events: Some(notify.max_events),
        heartbeat: notify.heartbeat.map(span),
        webhook: None,
        command: notify.command.clone(),
    }
}

fn render_ready(ready: &Ready) -> types::Ready {
    let timeout = Some(span(ready.timeout));
    let port = |port: &ReadyPort| match port {
        ReadyPort::Any => Port::from("any"),
        ReadyPort::Number(number) => Port::Number(u64::from(*number)),
        ReadyPort::Leased(name) => Port::Word(name.clone()),
    };
    match &ready.by {
        ReadyBy::Port { port: by } => types::Ready { port: Some(port(by)), timeout, ..Default::default() },
        ReadyBy::Http { host: LoopbackHost::Localhost, port: by, path, status } => types::Ready {
            port: Some(port(by)),
            http: Some(path.clone()),
            status: *status,
            timeout,
            ..Default::default()
        },
        // Only an address can name another host than localhost, and it always has a number.
        ReadyBy::Http { host, port: by, path, status } => {
            let number = if let ReadyPort::Number(number) = by { format!(":{number}") } else { String::new() };
            let http = Some(format!("http://{}{number}{path}", host.text()));
            types::Ready { http, status: *status, timeout, ..Default::default() }
        }
        ReadyBy::Output { pattern } => types::Ready { output: Some(pattern.clone()), timeout, ..Default::default() },
        ReadyBy::Peer => types::Ready { peer: Some(true), timeout, ..Default::default() },
    }
}

fn render_restart(restart: &Restart) -> types::Restart {
    let when = match restart.when {
        When::OnFailure => "on_failure",
        When::Always => "always",
        When::AfterTurn => "after_turn",
    };
    types::Restart::Policy(RestartPolicy {
        when: when.to_owned(),
        initial: Some(span(restart.initial)),
        factor: Some(f64::from(restart.factor_percent) / 100.0),
        max: Some(span(restart.max)),
        limit: Some(restart.limit),
        window: Some(span(restart.window)),
        stable: Some(span(restart.stable)),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use pinfold_model::facts::Intent;
    use pinfold_model::spec::{Defaults, Spec};

    use super::super::start_request;
    use super::*;

    fn parsed(request: StartRequest) -> Spec {
        let defaults = Defaults { cwd: "/work".into(), output_limit: 64 << 20, ..Defaults::default() };
        start_request::parse(request, ("ann".to_owned(), vec![]), &defaults).expect("valid")
    }

    fn repeated(spec: Spec) -> StartRequest {
        let intent = json!({
            "format": 1, "id": "k3v9x2", "spec": spec.without_values(), "mark": "m", "at": 0, "boot_id": "b",
            "keeper": { "pid": 1, "start_time": 1 },
        });
        let intent: Intent = serde_json::from_value(intent).expect("an intent");
        render(&History::of(Arc::new(intent.into())))
    }

    /// Over JSON, as a client gets and sends it.
    fn is_the_same_again(request: Value) {
        let spec = parsed(serde_json::from_value(request).expect("a request"));
        let repeated = serde_json::to_value(repeated(spec.clone())).expect("JSON");
        assert_eq!(parsed(serde_json::from_value(repeated).expect("a request")), spec);
    }

    #[test]
    fn every_option_is_repeated() {
        is_the_same_again(json!({ "argv": ["make", "two words"], "cwd": "/srv" }));
        is_the_same_again(json!({
            "command": "make", "shell": "bash", "name": "n", "intent": "why", "labels": { "a": "b" },
            "streams": "separate", "stdin": "pipe", "strays": "stop", "stop_signal": "RTMIN+3", "grace": "2s",
            "time_limit": "1500ms", "idle_limit": "2m", "memory_limit": "512M", "pids_limit": 9, "cpus": 0.5,
            "cpu_time_limit": "1h", "lifetime": "parent", "owner_grace": "1m", "output_limit": "1M",
            "notify": { "on_complete": false, "patterns": ["A", "B"], "exclude": "C", "cooldown": "1s", "max_events": 3,
                        "heartbeat": "5m", "command": "say" },
            "ports": { "PORT": "lease", "API": 3000 }, "ready": { "port": "PORT", "http": "/up", "status": 204 },
            "restart": { "when": "on_failure", "initial": "3s", "factor": 1.5, "max": "9s", "limit": 4, "window": "1m",
                         "stable": "5s" },
        }));
        is_the_same_again(json!({ "command": "vi", "pty": { "rows": 30, "cols": 90 }, "restart": "always" }));
        for ready in [
            json!({ "port": "any" }),
            json!({ "port": 3000, "timeout": "5s" }),
            json!({ "http": "http://127.0.0.1:3000/up?x=1" }),
            json!({ "http": "http://[::1]:3000/" }),
            json!({ "output": "listening" }),
            json!({ "peer": true }),
        ] {
            is_the_same_again(json!({ "command": "serve", "ready": ready }));
        }
    }

    #[test]
    fn neither_the_environment_nor_a_webhook_is_shown() {
        let request = json!({
            "command": "make", "env": { "TOKEN": "hunter2" }, "idempotency_key": "k",
            "notify": { "webhook": "https://example.org/hunter2" },
        });
        let text = serde_json::to_string(&repeated(parsed(serde_json::from_value(request).expect("a request"))));
        let text = text.expect("JSON");
        assert!(!text.contains("hunter2") && !text.contains("TOKEN") && !text.contains("idempotency"), "{text}");
    }
}
