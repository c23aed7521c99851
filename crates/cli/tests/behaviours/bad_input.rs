//! Bad input: refused with a stable code and a message that names the field and what to give; nothing panics.

mod homes;
mod socket;

use pinfold_api::error::{ApiError, ErrorCode};
use pinfold_api::types::{ListQuery, OutputQuery, StartRequest, StopRequest, WaitManyRequest, WaitQuery};
use pinfold_testkit::Pinfold;

use crate::PINFOLD;
use crate::wire::send;

/// A daemon that must still be the same, and work, after all of this.
struct Unharmed {
    pinfold: Pinfold,
    pid: u32,
}

impl Unharmed {
    fn start() -> Self {
        let pinfold = Pinfold::start(PINFOLD);
        let pid = pinfold.daemon_pid();
        Self { pinfold, pid }
    }

    fn check(&self) {
        assert_eq!(self.pinfold.daemon_pid(), self.pid, "another daemon");
        assert_eq!(self.pinfold.run("echo well").1, "well\n");
        let log = std::fs::read_to_string(self.pinfold.home().join("daemon.log")).expect("a log");
        assert!(!log.contains("panicked"), "{log}");
    }
}

/// Checks code and message of a refusal: the message contains all of these.
#[track_caller]
fn assert_refused<T: std::fmt::Debug>(answer: Result<T, ApiError>, code: ErrorCode, named: &[&str]) {
    let error = answer.expect_err("refused");
    assert_eq!(error.code, code, "{error}");
    for name in named {
        assert!(error.message.contains(name), "`{name}` is not named: {error}");
    }
}

fn command(command: &str) -> StartRequest {
    StartRequest { command: Some(command.into()), ..StartRequest::default() }
}

#[test]
fn unusable_starts() {
    let daemon = Unharmed::start();
    let refused = |request: StartRequest, code, named: &[&str]| {
        assert_refused(daemon.pinfold.try_start(&request), code, named);
    };
    let argv = |argv: &[&str]| {
        let argv = argv.iter().map(|word| (*word).to_owned()).collect();
        StartRequest { argv: Some(argv), ..StartRequest::default() }
    };
    use ErrorCode::{BadCwd, BadSignal, InvalidRequest, NoProgram};
    for empty in [command(""), command(" \n\t "), argv(&[]), argv(&[""]), StartRequest::default()] {
        refused(empty, InvalidRequest, &["command is empty", "`argv`"]);
    }
    refused(StartRequest { argv: argv(&["ls"]).argv, ..command("ls") }, InvalidRequest, &["not both"]);
    refused(command("a\0b"), InvalidRequest, &["`command`", "NUL"]);
    let cwd = |cwd: &str| StartRequest { cwd: Some(cwd.into()), ..command("true") };
    refused(cwd("/no/such/directory"), BadCwd, &["/no/such/directory", "No such file"]);
    refused(cwd("/etc/passwd"), BadCwd, &["/etc/passwd", "not a directory"]);
    refused(cwd("relative/path"), InvalidRequest, &["relative/path", "absolute"]);
    let shell = |shell: &str| StartRequest { shell: Some(shell.into()), ..command("true") };
    refused(shell("/no/such/shell"), NoProgram, &["shell `/no/such/shell`", "No such file", "install it"]);
    refused(shell("no-such-shell"), NoProgram, &["shell `no-such-shell`", "PATH", "install it"]);
    refused(shell("/etc"), NoProgram, &["shell `/etc`", "not an executable file"]);
    refused(argv(&["no-such-program"]), NoProgram, &["program `no-such-program`", "PATH", "check its name"]);
    refused(argv(&["/etc/passwd"]), NoProgram, &["program `/etc/passwd`", "not an executable file"]);
    refused(StartRequest { stop_signal: Some("SIGFOO".into()), ..command("true") }, BadSignal, &["SIGFOO", "TERM"]);
    for bad in ["soon", "-5", "5 parsecs", "", "NaN"] {
        let named = [&*format!("`{bad}`"), "30s"];
        refused(StartRequest { time_limit: Some(bad.into()), ..command("true") }, InvalidRequest, &named);
        refused(StartRequest { grace: Some(bad.into()), ..command("true") }, InvalidRequest, &named);
        refused(StartRequest { wait: Some(bad.into()), ..command("true") }, InvalidRequest, &named);
    }
    refused(StartRequest { time_limit: Some("0".into()), ..command("true") }, InvalidRequest, &["time_limit", "leave"]);
    for bad in ["lots", "-1", "1.5M", "99999999999T"] {
        let limited = StartRequest { output_limit: Some(bad.into()), ..command("true") };
        refused(limited, InvalidRequest, &[&format!("`{bad}`"), "64k"]);
    }
    refused(StartRequest { output_limit: Some("1k".into()), ..command("true") }, InvalidRequest, &["1024", "65536"]);
    for bad in ["", "a\nb", &"x".repeat(200)] {
        refused(StartRequest { owner: Some(bad.into()), ..command("true") }, InvalidRequest, &["owner"]);
        refused(StartRequest { name: Some(bad.into()), ..command("true") }, InvalidRequest, &["name"]);
    }
    assert_eq!(daemon.pinfold.list(&ListQuery::default()).total, 0, "a refused start leaves no record");
    daemon.check();
}

#[test]
fn unusable_questions() {
    let daemon = Unharmed::start();
    let pinfold = &daemon.pinfold;
    let id = pinfold.sh("echo some output; sleep 300").id;
    use ErrorCode::{BadPattern, BadSignal, InvalidRequest, NotFound};
    for unknown in ["zzzzzz", "no-such-name", "zzzzzzzzzzzzzzzzzzzzzzzzzzzz", "../../etc/passwd", "%2e%2e", "a b", "ü"]
    {
        assert_refused(pinfold.try_show(unknown), NotFound, &[unknown, "pinfold ps"]);
    }
    assert_refused(pinfold.signal(&id, "NONSENSE"), BadSignal, &["NONSENSE", "TERM", "USR1"]);
    assert_refused(pinfold.signal(&id, "-9"), BadSignal, &["`-9`"]);
    let stop = |request: &StopRequest| {
        pinfold.block(pinfold.client().stop(&id, request)).map_err(|error| match error {
            pinfold_api::client::ClientError::Api { error, .. } => error,
            other => panic!("{other}"),
        })
    };
    assert_refused(stop(&StopRequest { signal: Some("X".into()), ..Default::default() }), BadSignal, &["`X`"]);
    assert_refused(stop(&StopRequest { grace: Some("-1".into()), ..Default::default() }), InvalidRequest, &["`-1`"]);

    let wait = |query: WaitQuery| pinfold.try_wait(&id, &query);
    let until = |until: &str| WaitQuery { until: Some(until.into()), ..WaitQuery::default() };
    assert_refused(wait(until("moonrise")), InvalidRequest, &["moonrise", "finished"]);
    assert_refused(wait(until("match")), InvalidRequest, &["`pattern`"]);
    assert_refused(wait(WaitQuery { timeout: Some("5x".into()), ..until("exit") }), InvalidRequest, &["`5x`"]);
    assert_refused(wait(WaitQuery { pattern: Some("(".into()), ..until("match") }), BadPattern, &["("]);

    let output = |query: OutputQuery| pinfold.try_output(&id, &query);
    let grep = |grep: &str| OutputQuery { grep: Some(grep.into()), ..OutputQuery::default() };
    for bad in ["(", "[a", "*", "\\", "(?P<n>a)\\k<n>", "a{9999}{9999}{9999}", &"(".repeat(10_000)] {
        assert_refused(output(grep(bad)), BadPattern, &[]);
    }
    assert_refused(output(OutputQuery { max_bytes: Some("much".into()), ..grep("") }), InvalidRequest, &["`much`"]);
    assert_refused(
        output(OutputQuery { tail: Some("many lines".into()), ..Default::default() }),
        InvalidRequest,
        &["many"],
    );
    assert_refused(
        output(OutputQuery { stream: Some("stdlog".into()), ..Default::default() }),
        InvalidRequest,
        &["stdlog"],
    );
    assert_refused(
        output(OutputQuery { format: Some("xml".into()), ..Default::default() }),
        InvalidRequest,
        &["xml", "raw"],
    );
    assert_refused(output(OutputQuery { wait: Some("1y".into()), ..Default::default() }), InvalidRequest, &["`1y`"]);
    daemon.check();
}

/// Expressions that make backtracking engines hang are answered like any other.
#[test]
fn pathological_patterns_are_answered() {
    let daemon = Unharmed::start();
    let pinfold = &daemon.pinfold;
    let id = pinfold.wait_finished(&pinfold.sh("head -c 20000 /dev/zero | tr '\\0' a; echo").id).id;
    for pattern in ["(a*)*b", "(a|aa)+$", "(.*)*(.*)*(.*)*x", "(x+x+)+y"] {
        let query = OutputQuery { grep: Some(pattern.into()), ..OutputQuery::default() };
        let matches = pinfold.output(&id, &query).matches.expect("matches");
        assert_eq!(matches.len(), usize::from(pattern == "(a|aa)+$"), "{pattern}");
    }
    daemon.check();
}

#[test]
fn unusable_lists_and_waits() {
    let daemon = Unharmed::start();
    let pinfold = &daemon.pinfold;
    let refused = |method: &str, target: &str, body: &str, named: &[&str]| {
        let answer = send(pinfold, method, target, body.as_bytes());
        assert_eq!(answer.status, 400, "{target}: {answer:?}");
        assert_refused(Err::<(), _>(answer.error()), ErrorCode::InvalidRequest, named);
    };
    let get = |target: &str, named: &[&str]| refused("GET", target, "", named);
    for page in
        ["nonsense", "live-x-abcdef", "live-1-!", "ended-1", "-", "gone-1-abcdef", "live-99999999999999999999-abcdef"]
    {
        get(&format!("/v1/processes?page={page}"), &["page", "`next`"]);
    }
    get("/v1/processes?status=dancing", &["dancing", "running"]);
    get("/v1/processes?limit=many", &["limit"]);
    get("/v1/processes?label=nonsense", &["nonsense", "key=value"]);
    get("/v1/processes?owner=%0a", &["owner"]);
    get("/v1/processes?colour=red", &["colour"]);
    get("/v1/events?after=yesterday", &["yesterday", "latest"]);
    get("/v1/events?wait=-1", &["-1"]);
    refused("POST", "/v1/gc", r#"{"older_than": "long ago"}"#, &["long ago"]);
    let many = |ids: Vec<String>, until: &str| {
        let request = WaitManyRequest { ids, mode: None, until: Some(until.into()), timeout: None };
        serde_json::to_string(&request).expect("a request")
    };
    refused("POST", "/v1/wait", &many(vec![], "exit"), &["ids"]);
    refused("POST", "/v1/wait", &many(vec!["x".into(); 257], "exit"), &["256"]);
    refused("POST", "/v1/wait", &many(vec!["x".into()], "moonrise"), &["moonrise"]);
    daemon.check();
}

/// A value above the maximum is lowered to it, and the response says so; it is not refused.
#[test]
fn d4_every_list_and_wait_has_a_bound() {
    let daemon = Unharmed::start();
    let pinfold = &daemon.pinfold;
    (0..3).for_each(|_| drop(pinfold.run("exit 0")));
    assert_eq!(pinfold.list(&ListQuery { limit: Some(u32::MAX), ..ListQuery::default() }).processes.len(), 3);
    let one = pinfold.list(&ListQuery { limit: Some(0), ..ListQuery::default() });
    assert!(one.processes.len() == 1 && one.next.is_some());
    let request = StartRequest { wait: Some("9999h".into()), ..command("exit 0") };
    let waited = pinfold.start_request(&request).waited.expect("a wait");
    assert!(waited.clamped && waited.limit_ms == 3_600_000, "{waited:?}");
    daemon.check();
}
