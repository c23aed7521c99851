//! A start on a mount that does not respond: only this start fails, and the error says why.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use pinfold_api::client::Client;
use pinfold_api::error::{ApiError, ErrorCode};
use pinfold_api::types::{ListQuery, StartRequest, Status};
use pinfold_testkit::hung::HungMount;
use pinfold_testkit::{Pidfd, Pinfold, Setup, children_of, until};

use crate::PINFOLD;
use crate::requests::request;

/// Directory, program, shell and PATH are on the mount; other starts are not delayed.
/// D8
#[test]
fn a_hung_mount_fails_one_start_and_delays_no_other() {
    let Some(mount) = HungMount::try_new() else { return };
    for containment in ["containment = \"auto\"\n", "containment = \"subreaper\"\n"] {
        let pinfold = Pinfold::start_with(PINFOLD, Setup { config: containment.into(), ..Setup::default() });
        let inside = mount.path().join("dir").display().to_string();
        let env = [("PATH".to_owned(), Some(inside.clone()))].into();
        let on_mount = [
            StartRequest { cwd: Some(inside.clone()), ..request("true") },
            StartRequest { argv: Some(vec![format!("{inside}/program")]), ..StartRequest::default() },
            StartRequest { shell: Some(format!("{inside}/sh")), ..request("true") },
            StartRequest { argv: Some(vec!["program".into()]), env, ..StartRequest::default() },
        ];
        std::thread::scope(|scope| {
            let starts: Vec<_> = (0..20)
                .map(|number| {
                    let asked = on_mount[number % 4].clone();
                    // A client belongs to one runtime.
                    let client = Client::new(pinfold.home().join("socket"));
                    scope.spawn(move || {
                        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                        runtime.expect("a runtime").block_on(client.start(&asked)).expect_err("it cannot start")
                    })
                })
                .collect();
            until("all wait", || pinfold.list(&ListQuery::default()).processes.len() == 20);
            let (record, text) = pinfold.run("echo fine");
            assert_eq!((record.status, text.as_str()), (Status::Finished, "fine\n"));
            for (number, start) in starts.into_iter().enumerate() {
                let error = start.join().expect("a thread").to_string();
                assert!(error.contains(&inside) && error.contains("did not answer"), "{number}: {error}");
            }
        });
        until("none of them is left", || pinfold.list(&live()).total == 0);
        for keeper in pinfold.keepers() {
            assert_eq!(children_of(keeper), Vec::<u32>::new());
        }
        assert_eq!(pinfold.run("echo fine").1, "fine\n");
    }
}

fn live() -> ListQuery {
    ListQuery { status: Some("live".into()), ..ListQuery::default() }
}

#[test]
fn a_start_that_hangs_can_be_stopped() {
    let Some(mount) = HungMount::try_new() else { return };
    let pinfold = Pinfold::start(PINFOLD);
    let cwd = mount.path().display().to_string();
    let mut run = pinfold.command(&["run", "--name", "stuck", "--cwd", &cwd, "true"]);
    let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a run");
    until("it is there", || pinfold.list(&live()).total == 1);
    let stopped = pinfold.cli(&["stop", "stuck"]);
    assert_eq!(stopped.code, Some(0), "{}", stopped.stderr);
    let output = run.wait_with_output().expect("its end");
    assert!(!output.status.success());
    until("it is gone", || pinfold.list(&live()).total == 0);
}

/// The command line prints what it waits for, on stderr only.
#[test]
fn a_client_that_waits_says_so() {
    let Some(mount) = HungMount::try_new() else { return };
    let pinfold = Pinfold::start(PINFOLD);
    let cwd = mount.path().display().to_string();
    let error = format!("cannot enter directory `{cwd}`: its file system did not answer");
    let cli = pinfold.cli(&["run", "--cwd", &cwd, "true"]);
    assert_eq!((cli.code, cli.stdout.as_str()), (Some(125), ""));
    let said = cli.stderr.find(&format!("waiting for `true` to start in {cwd}"));
    assert!(said.is_some() && said < cli.stderr.find(&error), "{}", cli.stderr);
    // With --json, stderr has only the error, for programs.
    let cli = pinfold.cli(&["run", "-d", "--json", "--cwd", &cwd, "true"]);
    assert_eq!((cli.code, cli.stdout.as_str()), (Some(125), ""));
    let error_body: ApiError = serde_json::from_str(&cli.stderr).unwrap_or_else(|bad| panic!("{bad}: {cli:?}"));
    assert!(error_body.code == ErrorCode::BadCwd && error_body.message.contains(&error), "{error_body}");
}

/// Every command that waits for a daemon that does not respond says so.
#[test]
fn a_client_of_a_silent_daemon_says_that_it_waits() {
    let pinfold = Pinfold::start(PINFOLD);
    let daemon = Pidfd::open(pinfold.daemon_pid()).expect("the daemon");
    // SIGSTOP stands in for a debugger or a full disk.
    daemon.signal(19);
    let mut ps = pinfold.command(&["ps"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("ps");
    let mut said = String::new();
    BufReader::new(ps.stderr.as_mut().expect("its stderr")).read_line(&mut said).expect("a line");
    assert!(said.contains("the daemon does not answer"), "{said}");
    daemon.signal(18);
    assert!(ps.wait().expect("its end").success());
}
