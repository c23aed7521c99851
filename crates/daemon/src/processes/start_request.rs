//! From a start request to a spec: parses what is text, fills in the defaults, and checks the result.

use std::time::Duration;

use pinfold_api::error::ApiError;
use pinfold_api::input::{Size, Span};
use pinfold_api::types::{self, Pty, StartRequest};
use pinfold_model::limits::{TreeLimits, parse_cpus};
use pinfold_model::notify::{self, Notify};
use pinfold_model::signal::Signal;
use pinfold_model::spec::{Defaults, Lifetime, MAX_GRACE, Program, PtySize, Spec, SpecError, StopManner};
use pinfold_model::trace::TraceParent;
use pinfold_model::units::{BadDuration, BadSize, parse_duration, parse_size};

use crate::config::Config;
use crate::request_error::RequestError;
use crate::services;

/// The spec of a request. The owner and its ancestors depend on the caller, see [`crate::core::Core::owner_of_start`].
pub(crate) fn parse(
    mut request: StartRequest,
    (owner, ancestors): (String, Vec<String>),
    defaults: &Defaults,
) -> Result<Spec, RequestError> {
    let service = services::parse(&mut request)?;
    let pty = request.pty.and_then(terminal_size);
    if pty.is_some() && request.stdin.is_some() {
        return Err(SpecError::WithPty { field: "stdin" }.into());
    }
    let limits = TreeLimits {
        memory: bytes(request.memory_limit)?,
        pids: request.pids_limit,
        millicpus: request.cpus.map(parse_cpus).transpose().map_err(SpecError::from)?,
        cpu_time: duration(request.cpu_time_limit)?,
    };
    let stop = StopManner {
        signal: request.stop_signal.as_deref().map_or(Ok(Signal::TERM), Signal::parse)?,
        grace: duration(request.grace)?.unwrap_or(defaults.grace).min(MAX_GRACE),
    };
    let spec = Spec {
        program: Program::parse(request.command, request.argv, request.shell.as_deref())?,
        cwd: defaults.resolve_cwd(request.cwd.as_deref())?,
        inherit_env: request.inherit_env.unwrap_or(true),
        env: request.env,
        owner,
        ancestors,
        lifetime: lifetime(request.lifetime.unwrap_or_default(), duration(request.owner_grace)?)?,
        name: request.name,
        intent: request.intent,
        labels: request.labels,
        streams: request.streams.unwrap_or_default(),
        stdin: request.stdin.unwrap_or_default(),
        pty,
        strays: request.strays.unwrap_or_default(),
        stop,
        time_limit: duration(request.time_limit)?.or(defaults.limits.time),
        idle_limit: duration(request.idle_limit)?.or(defaults.limits.idle),
        limits: limits.or(defaults.limits.tree),
        sandbox: None,
        notify: request.notify.map(notify).transpose()?.unwrap_or_default(),
        service,
        output_limit: bytes(request.output_limit)?.unwrap_or(defaults.output_limit),
        idempotency_key: request.idempotency_key,
        traceparent: request.traceparent.as_deref().map(TraceParent::parse).transpose().map_err(SpecError::from)?,
        tool: request.tool,
    };
    Ok(spec.check()?)
}

/// Checks a start request as a daemon with the default configuration would, without starting anything. For clients that
/// read requests from a file and report every error before the first start.
pub fn check_start(request: StartRequest) -> Result<(), ApiError> {
    let Config { grace, output_limit, process_limits: limits, .. } = Config::default();
    let defaults = Defaults { cwd: "/".into(), home: "/".into(), grace, output_limit, limits };
    parse(request, (String::from("check"), vec![]), &defaults).map(drop).map_err(|error| error.0)
}

fn duration(span: Option<Span>) -> Result<Option<Duration>, BadDuration> {
    span.map(|span| parse_duration(&span.text())).transpose()
}

fn bytes(size: Option<Size>) -> Result<Option<u64>, BadSize> {
    size.map(|size| parse_size(&size.text())).transpose()
}

fn lifetime(lifetime: types::Lifetime, grace: Option<Duration>) -> Result<Lifetime, RequestError> {
    match lifetime {
        types::Lifetime::Keep if grace.is_some() => {
            Err(RequestError::invalid("`owner_grace` needs a `lifetime`: give `owner` or `parent`"))
        }
        types::Lifetime::Keep => Ok(Lifetime::Keep),
        types::Lifetime::Owner => Ok(Lifetime::Owner { grace }),
        types::Lifetime::Parent => Ok(Lifetime::Parent { grace }),
    }
}

fn terminal_size(pty: Pty) -> Option<PtySize> {
    match pty {
        Pty::Wanted(wanted) => wanted.then(PtySize::default),
        Pty::Sized(size) => Some(size),
    }
}

fn notify(request: types::Notify) -> Result<Notify, BadDuration> {
    Ok(Notify {
        on_complete: request.on_complete.unwrap_or(true),
        patterns: request.patterns,
        exclude: request.exclude,
        cooldown: duration(request.cooldown)?.unwrap_or(notify::DEFAULT_COOLDOWN),
        max_events: request.max_events.unwrap_or(notify::DEFAULT_MAX_EVENTS),
        heartbeat: duration(request.heartbeat)?,
        webhook: request.webhook,
        command: request.command,
    })
}

#[cfg(test)]
mod tests {
    use pinfold_model::limits::ProcessLimits;
    use pinfold_model::spec::Stdin;

    use super::*;

    fn request(command: &str) -> StartRequest {
        StartRequest { command: Some(command.into()), ..StartRequest::default() }
    }

    fn parsed(request: StartRequest, defaults: &Defaults) -> Result<Spec, String> {
        parse(request, ("ann".to_owned(), vec![]), defaults).map_err(|error| error.0.message)
    }

    fn defaults() -> Defaults {
        Defaults { cwd: "/work".into(), output_limit: 64 << 20, ..Defaults::default() }
    }

    /// A request that gives only a command and [`Spec::new`] mean the same.
    #[test]
    fn a_request_without_options_gets_the_defaults() {
        let tree = TreeLimits { pids: Some(7), ..TreeLimits::default() };
        let limits = ProcessLimits { time: Some(Duration::from_secs(9)), idle: None, tree };
        let defaults = Defaults { grace: 2 * MAX_GRACE, limits, ..defaults() };
        let program = Program::parse(Some("make".into()), None, None).expect("a command");
        let usual = Spec { owner: "ann".to_owned(), ..Spec::new(program, "/work".into(), &defaults) };
        assert_eq!(parsed(request("make"), &defaults), Ok(usual));
    }

    #[test]
    fn the_configuration_limits_what_a_request_does_not() {
        let pids = |pids| TreeLimits { pids: Some(pids), ..TreeLimits::default() };
        let time = Some(Duration::from_secs(9));
        let limits = ProcessLimits { time, idle: None, tree: pids(7) };
        let defaults = Defaults { limits, ..defaults() };
        let spec = parsed(request("true"), &defaults).expect("valid");
        assert_eq!((spec.time_limit, spec.idle_limit, spec.limits), (time, None, pids(7)));
        let spec = parsed(StartRequest { pids_limit: Some(99), ..request("true") }, &defaults).expect("valid");
        assert_eq!(spec.limits, pids(99));
    }

    #[test]
    fn a_terminal_goes_with_no_other_stdin() {
        let terminal = |stdin| StartRequest { pty: Some(Pty::Wanted(true)), stdin, ..request("true") };
        assert_eq!(parsed(terminal(None), &defaults()).expect("valid").pty, Some(PtySize::default()));
        for stdin in [Stdin::Null, Stdin::Pipe] {
            let error = parsed(terminal(Some(stdin)), &defaults()).expect_err("refused");
            assert!(error.contains("`stdin`"), "{error}");
        }
        let none = StartRequest { pty: Some(Pty::Wanted(false)), ..terminal(Some(Stdin::Pipe)) };
        assert_eq!(parsed(none, &defaults()).expect("valid").stdin, Stdin::Pipe);
    }

    #[test]
    fn an_owner_grace_needs_a_lifetime_that_ends_with_the_owner() {
        let asked = |lifetime| StartRequest { lifetime, owner_grace: Some("1m".into()), ..request("true") };
        let grace = Some(Duration::from_secs(60));
        let owner = parsed(asked(Some(types::Lifetime::Owner)), &defaults()).expect("valid");
        assert_eq!(owner.lifetime, Lifetime::Owner { grace });
        assert!(parsed(asked(None), &defaults()).expect_err("refused").contains("`lifetime`"));
    }
}
