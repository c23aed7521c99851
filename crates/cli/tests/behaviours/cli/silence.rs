//! A daemon that does not respond, and `run` of a process that is restarted.

use pinfold_api::types::{ListQuery, Record, Status};
use pinfold_testkit::{Pidfd, Pinfold, Setup, until, until_some};

use crate::PINFOLD;
use crate::clients::Running;

const INT: i32 = 2;
const TERM: i32 = 15;
const CONT: i32 = 18;
const STOP: i32 = 19;

/// Stops the daemon until this is dropped.
struct Stopped(Pidfd);

impl Stopped {
    fn new(pinfold: &Pinfold) -> Self {
        let daemon = Pidfd::open(pinfold.daemon_pid()).expect("a daemon");
        daemon.signal(STOP);
        Self(daemon)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.signal(CONT);
    }
}

#[test]
fn doctor_reports_a_daemon_that_does_not_answer() {
    let pinfold = Pinfold::start(PINFOLD);
    let healthy = pinfold.cli(&["doctor"]);
    assert!(healthy.code == Some(0) && healthy.stdout.contains("good  daemon: answers on"), "{healthy:?}");
    let stopped = Stopped::new(&pinfold);
    let silent = pinfold.cli(&["doctor"]);
    assert_eq!(silent.code, Some(1), "{silent:?}");
    assert!(silent.stdout.contains("bad   daemon:") && silent.stdout.contains("did not answer"), "{}", silent.stdout);
    assert!(silent.stdout.contains("kill -CONT"), "{}", silent.stdout);
    drop(stopped);
    assert_eq!(pinfold.cli(&["doctor"]).code, Some(0));
}

#[test]
fn doctor_reports_a_home_that_cannot_be_written() {
    use std::os::unix::fs::PermissionsExt;
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    let pinfold = Pinfold::prepare(PINFOLD, Setup { user: root.then_some(65534), ..Setup::default() });
    let home = pinfold.home().to_owned();
    let chmod = |mode| std::fs::set_permissions(&home, PermissionsExt::from_mode(mode)).expect("a mode");
    assert_eq!(pinfold.cli(&["doctor"]).code, Some(0));
    chmod(0o500);
    let refused = pinfold.cli(&["doctor"]);
    let inside = home.join("sub").display().to_string();
    let unmade = pinfold.cli(&["doctor", "--home", &inside]);
    chmod(0o700);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let said = format!("bad   state: {} cannot be written: Permission denied", home.display());
    assert!(refused.stdout.contains(&said) && refused.stdout.contains("check its permissions"), "{}", refused.stdout);
    assert_eq!(unmade.code, Some(1), "{unmade:?}");
    assert!(unmade.stdout.contains(&format!("bad   state: {inside} cannot be created")), "{}", unmade.stdout);
}

/// `timeout` sends TERM once and waits.
#[test]
fn run_ends_at_the_first_term_also_if_the_daemon_is_silent() {
    let pinfold = Pinfold::start(PINFOLD);
    let stopped = Stopped::new(&pinfold);
    let client = Running::start(&pinfold, &["run", "sleep 300"]);
    client.until_it_takes_term();
    client.signal(TERM);
    let cli = client.end();
    assert_eq!(cli.code, Some(143), "{cli:?}");
    assert!(cli.stderr.contains("interrupted before the daemon confirmed the start"), "{cli:?}");
    drop(stopped);

    let mut client = Running::start(&pinfold, &["run", "echo up; sleep 300"]);
    assert_eq!(client.line(), "up");
    let stopped = Stopped::new(&pinfold);
    client.signal(TERM);
    let cli = client.end();
    assert_eq!(cli.code, Some(143), "{cli:?}");
    assert!(cli.stderr.contains("the daemon does not answer") && cli.stderr.contains("doctor"), "{cli:?}");
    drop(stopped);

    let mut client = Running::start(&pinfold, &["run", "echo up; sleep 300"]);
    assert_eq!(client.line(), "up");
    client.signal(TERM);
    let cli = client.end();
    assert_eq!((cli.code, cli.stderr.as_str()), (Some(143), ""), "a daemon that answers ends it: {cli:?}");
}

fn live(pinfold: &Pinfold) -> u64 {
    pinfold.list(&ListQuery { status: Some("live".into()), ..ListQuery::default() }).total
}

fn last_life(pinfold: &Pinfold, name: &str) -> Option<Record> {
    let all = pinfold.list(&ListQuery { name: Some(name.into()), ..ListQuery::default() }).processes;
    let last = all.into_iter().max_by_key(|record| record.life.as_ref().map(|life| life.number))?;
    Some(pinfold.show(&last.id))
}

#[test]
fn run_shows_every_restart_until_restarts_are_given_up() {
    let pinfold = Pinfold::start(PINFOLD);
    let restart = ["run", "--restart", "always", "--restart-limit", "2", "--restart-delay", "50ms"];
    let cli = pinfold.cli(&[&restart[..], &["echo life; exit 3"]].concat());
    assert_eq!((cli.code, cli.stdout.as_str()), (Some(3), "life\nlife\nlife\n"), "{cli:?}");
    assert!(cli.stderr.contains("exit 3") && cli.stderr.contains("restarts in"), "{cli:?}");
    assert!(cli.stderr.contains("restarted 2 times, gave up"), "{cli:?}");

    let file = pinfold.home().join("runs");
    let script = format!("echo x >> {0}; [ $(wc -l < {0}) -ge 2 ] || exit 3; echo done", file.display());
    let cli = pinfold.cli(&["run", "--restart", "on-failure", "--restart-delay", "50ms", &script]);
    assert_eq!((cli.code, cli.stdout.as_str()), (Some(0), "done\n"), "{cli:?}");
    assert!(!cli.stderr.contains("gave up"), "{cli:?}");
    assert_eq!(live(&pinfold), 0);

    let cli = pinfold.cli(&["run", "--restart", "after-turn", "echo turn"]);
    assert_eq!((cli.code, cli.stdout.as_str()), (Some(0), "turn\n"), "{cli:?}");
    assert!(cli.stderr.contains("pinfold restart"), "{cli:?}");

    let limited = ["--timeout", "300ms", "--restart", "always", "--restart-delay", "10ms", "echo life; sleep 0.05"];
    let cli = pinfold.cli(&[&["run", "--name", "web", "--restart-limit", "100"], &limited[..]].concat());
    assert_eq!(cli.code, Some(124), "the limit is one for all lives: {cli:?}");
    assert!(cli.stdout.matches("life").count() > 1, "{cli:?}");
}

#[test]
fn ctrl_c_stops_a_restarted_process_while_it_runs_and_between_restarts() {
    let pinfold = Pinfold::start(PINFOLD);
    let restart = |name| ["run", "--name", name, "--restart", "always", "--restart-delay"];
    let mut client = Running::start(&pinfold, &[&restart("web")[..], &["10ms", "echo up; sleep 300"]].concat());
    assert_eq!(client.line(), "up");
    client.signal(INT);
    let cli = client.end();
    assert_eq!(cli.code, Some(143), "{cli:?}");
    let life = last_life(&pinfold, "web").expect("a record").life.expect("a life");
    assert!(life.over && life.next.is_none() && life.number == 1, "{life:?}");

    let mut client = Running::start(&pinfold, &[&restart("api")[..], &["50s", "echo once; exit 4"]].concat());
    assert_eq!(client.line(), "once");
    let waiting =
        || last_life(&pinfold, "api").filter(|record| record.life.as_ref().is_some_and(|l| l.restarting_at.is_some()));
    let ended = until_some("a restart that is due", waiting);
    client.signal(INT);
    let cli = client.end();
    assert_eq!(cli.code, Some(4), "{cli:?}");
    let life = pinfold.show(&ended.id).life.expect("a life");
    assert!(life.over && life.restarting_at.is_none(), "{life:?}");
    until("nothing is left", || live(&pinfold) == 0);
    assert_eq!(pinfold.show(&ended.id).status, Status::Finished);
}
