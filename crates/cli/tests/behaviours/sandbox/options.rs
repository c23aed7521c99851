//! What a start may ask for, what it is told, and where it is shown.

use pinfold_api::error::ErrorCode;
use pinfold_api::types::SandboxPart;
use pinfold_testkit::Pinfold;

use super::{Places, daemons, request, run, try_start};
use crate::PINFOLD;

#[test]
fn a_record_says_what_was_asked_for_and_what_is_enforced() {
    let places = Places::new();
    let pinfold = Pinfold::start(PINFOLD);
    let (record, _) =
        run(&pinfold, "true", &places.work(), Some("workspace-write,network=leased,unix=any,tier=landlock"));
    let shown = record.sandbox.expect("a sandbox");
    assert_eq!((shown.label.as_str(), shown.hint), ("workspace-write, leased ports", None));
    assert_eq!((shown.got.len(), shown.missing.len()), (7, 0));
    assert!(shown.landlock_abi >= 6 && shown.got.contains(&SandboxPart::Signals));
    let cli = pinfold.cli(&["show", &record.id]);
    assert!(cli.stdout.contains("workspace-write,write=") && cli.stdout.contains("signals"), "{}", cli.stdout);
    let cli = pinfold.cli(&["ps", "--all"]);
    assert!(cli.stdout.contains("[workspace-write]"), "{}", cli.stdout);
    let (plain, _) = run(&pinfold, "true", &places.work(), None);
    assert_eq!(plain.sandbox, None);
}

#[test]
fn a_failed_command_gets_a_hint_with_its_profile() {
    let places = Places::new();
    let pinfold = Pinfold::start(PINFOLD);
    let (record, _) = run(&pinfold, "touch x", &places.work(), Some("read-only"));
    let hint = record.sandbox.expect("a sandbox").hint.expect("a hint");
    assert!(hint.contains("`read-only`") && hint.contains("$TMPDIR"), "{hint}");
}

#[test]
fn what_cannot_be_used_is_refused() {
    let places = Places::new();
    let pinfold = Pinfold::start(PINFOLD);
    let refused = |sandbox: &str| try_start(&pinfold, "true", &places.work(), sandbox).expect_err("refused");
    for (sandbox, says) in [
        ("tight", "workspace-write"),
        ("read-only,write=relative", "absolute"),
        ("read-only,write=/does/not/exist", "create it first"),
        ("read-only,network=some", "leased"),
        ("read-only,write=/", "pinfold's own files"),
    ] {
        let error = refused(sandbox);
        assert_eq!(error.code, ErrorCode::InvalidRequest, "{sandbox}");
        assert!(error.message.contains(says), "{sandbox}: {}", error.message);
    }
    let home = format!("read-only,write={}", pinfold.home().display());
    assert!(refused(&home).message.contains("pinfold's own files"));
    let key = |sandbox| pinfold_api::types::StartRequest {
        idempotency_key: Some("one".into()),
        ..request("true", &places.work(), Some(sandbox))
    };
    pinfold.start_request(&key("read-only"));
    let error = pinfold.try_start(&key("workspace-write")).expect_err("another request");
    assert_eq!(error.code, ErrorCode::KeyReused);
}

#[test]
fn the_temporary_directory_is_its_own_and_goes_with_it() {
    let places = Places::new();
    for (environment, pinfold) in daemons() {
        let script = "echo x > $TMPDIR/a && cat $TMPDIR/a && mktemp >/dev/null && echo $TMPDIR";
        let (record, text) = run(&pinfold, script, &places.work(), Some("read-only"));
        let tmp = text.lines().last().expect("its directory").to_owned();
        assert!(text.starts_with("x\n") && tmp.starts_with('/'), "{environment}: {text}, {record:?}");
        pinfold_testkit::until("it is removed", || !std::path::Path::new(&tmp).exists());
        let (_, text) =
            run(&pinfold, "f=$(mktemp -p /tmp) && rm $f && echo shared", &places.work(), Some("read-only,tmp=shared"));
        assert_eq!(text, "shared\n", "{environment}");
    }
}

#[test]
fn only_listed_variables_are_passed() {
    let places = Places::new();
    let pinfold = Pinfold::start(PINFOLD);
    let mut request = request("env", &places.work(), Some("read-only,env=PATH,env=SHOWN_*"));
    for name in ["SHOWN_A", "SECRET"] {
        request.env.insert(name.into(), Some("value".into()));
    }
    let record = pinfold.start_request(&request).record;
    pinfold.wait_finished(&record.id);
    let text = pinfold.text(&record.id);
    let mut names: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.retain(|name| !["PWD", "_", "OLDPWD", "SHLVL"].contains(name));
    names.sort_unstable();
    let expected =
        ["PATH", "PINFOLD_HOME", "PINFOLD_ID", "PINFOLD_MARK", "PINFOLD_OWNER", "SHOWN_A", "TEMP", "TMP", "TMPDIR"];
    assert_eq!(names, expected);
}

#[test]
fn check_tries_a_sandbox_and_prints_the_results() {
    let places = Places::new();
    for (environment, pinfold) in daemons() {
        let mut command = pinfold.command(&["sandbox", "check", "workspace-write,network=none"]);
        let output = command.current_dir(places.work()).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = |what: &str| text.lines().find(|line| line.starts_with(what)).unwrap_or_default().to_owned();
        assert!(line("write in the working directory").ends_with("allowed"), "{environment}: {text}");
        for refused in ["write elsewhere", "listen on a TCP port", "open a UDP", "connect to", "signal a process"] {
            assert!(line(refused).contains("refused"), "{environment}, {refused}: {text}");
        }
        assert!(output.status.success(), "{environment}: {text}");
    }
}
