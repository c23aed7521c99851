//! The command line as a person or a script uses it.

mod commands;
mod completion;
mod json;
mod logs;
mod owners;
mod removal;
mod repetition;
mod run;
mod selection;
mod silence;
mod statistics;
mod texts;

use pinfold_testkit::{Pinfold, Setup};

use crate::PINFOLD;

#[test]
fn an_unknown_command_exits_with_2_and_shows_the_usage() {
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    for line in [
        "dance",
        "show",
        "show a b",
        "stop",
        "stop a --all",
        "signal HUP",
        "ps --limit 0",
        "ps --limit many",
        "logs a --raw --grep x",
        "completions cmd.exe",
        "--nonsense",
    ] {
        let cli = pinfold.cli(&line.split(' ').collect::<Vec<_>>());
        assert_eq!((cli.code, cli.stdout.as_str()), (Some(2), ""), "{line}");
        assert!(cli.stderr.contains("error:") && cli.stderr.contains("--help"), "{line}: {}", cli.stderr);
    }
    // These exit with the code of another program, so their own errors have a code that programs do not use.
    for line in ["run", "run --strays adopt true", "--json run --label nonsense true", "wait a --until moonrise"] {
        let cli = pinfold.cli(&line.split(' ').collect::<Vec<_>>());
        assert_eq!((cli.code, cli.stdout.as_str()), (Some(125), ""), "{line}");
        assert!(cli.stderr.contains("error:") && cli.stderr.contains("--help"), "{line}: {}", cli.stderr);
    }
    assert!(!pinfold.home().join("lock").exists(), "a daemon was started for nothing");
}

#[test]
fn a_request_that_the_daemon_refuses_exits_with_2_and_says_why() {
    let pinfold = Pinfold::start(PINFOLD);
    let live = pinfold.sh("sleep 300").id;
    for (arguments, named) in [
        (&["show", "missing"][..], "missing"),
        (&["logs", "missing"], "missing"),
        (&["stop", "missing"], "missing"),
        (&["signal", "DANCE", &live], "DANCE"),
        (&["stop", "--grace", "soon", &live], "soon"),
        (&["logs", "--grep", "(", &live], "("),
        (&["ps", "--status", "dancing"], "dancing"),
        (&["gc", "--older-than", "long ago"], "long ago"),
        (&["events", "--after", "yesterday"], "yesterday"),
    ] {
        let cli = pinfold.cli(arguments);
        assert_eq!((cli.code, cli.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(cli.stderr.starts_with("pinfold: ") && cli.stderr.contains(named), "{arguments:?}: {}", cli.stderr);
    }
}

#[test]
fn some_commands_need_no_daemon_and_start_none() {
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    let home = pinfold.home().to_str().expect("text");
    let doctor = pinfold.cli(&["doctor"]);
    assert!(doctor.code == Some(0) && doctor.stdout.contains(home), "{doctor:?}");
    let config = pinfold.cli(&["config"]);
    assert!(config.code == Some(0) && config.stdout.contains("output_limit = "), "{config:?}");
    assert_eq!(pinfold.cli(&["config", "path"]).stdout, format!("{home}/config.toml\n"));
    for (shell, mark) in
        [("bash", "-F _clap_complete_pinfold"), ("zsh", "#compdef pinfold"), ("fish", "--command pinfold")]
    {
        assert!(pinfold.cli(&["completions", shell]).stdout.contains(mark), "{shell}");
    }
    assert!(pinfold.cli(&["man"]).stdout.contains(".TH pinfold"));
    let pages = pinfold.home().join("man1");
    assert_eq!(pinfold.cli(&["man", pages.to_str().expect("text")]).code, Some(0));
    assert!(pages.join("pinfold-run.1").exists() && pages.join("pinfold.1").exists());
    assert!(pinfold.cli(&["--version"]).stdout.starts_with("pinfold "));
    for command in [
        "run", "ps", "show", "logs", "wait", "stop", "signal", "pause", "resume", "events", "gc", "owner", "handover",
        "token", "connect", "hook",
    ] {
        let help = pinfold.cli(&[command, "--help"]);
        assert!(help.code == Some(0) && help.stdout.contains("Example"), "{command}: {help:?}");
    }
    let status = pinfold.cli(&["daemon", "status"]);
    assert!(
        status.code == Some(3) && status.stderr.contains(&format!("no daemon is running for {home}")),
        "{status:?}"
    );
    assert_eq!(pinfold.cli(&["daemon", "stop"]).code, Some(0));
    assert!(!pinfold.home().join("lock").exists(), "a daemon was started for nothing");
}

/// The defaults as a file give the same configuration as no file.
#[test]
fn the_default_configuration_can_be_written_and_used() {
    let pinfold = Pinfold::prepare(PINFOLD, Setup::default());
    let (shown, default) = (pinfold.cli(&["config"]).stdout, pinfold.cli(&["config", "default"]).stdout);
    assert_eq!(shown, default);
    std::fs::write(pinfold.home().join("config.toml"), &default).expect("written");
    assert_eq!(pinfold.cli(&["config"]).stdout, default);
    assert_eq!(pinfold.cli(&["run", "exit 3"]).code, Some(3));
}

/// `--home` moves everything, like `PINFOLD_HOME`, and wins over it.
#[test]
fn two_homes_are_independent() {
    let (one, other) = (Pinfold::start(PINFOLD), Pinfold::start(PINFOLD));
    let id = one.sh("sleep 300").id;
    let home = one.home().to_str().expect("text");
    assert_eq!(other.cli(&["ps"]).stdout, "no processes\n");
    assert_eq!(other.cli(&["show", &id]).code, Some(2));
    assert!(other.cli(&["--home", home, "ps"]).stdout.contains(&id));
    assert_ne!(one.daemon_pid(), other.daemon_pid());
}
