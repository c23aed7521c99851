//! From the arguments of `run` to the start request.

use clap::Parser;

use pinfold_api::types::Lifetime;

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: RunArgs,
}

fn parsed(line: &[&str]) -> RunArgs {
    Line::try_parse_from([&["run"], line].concat()).expect("parses").args
}

fn asked(line: &[&str]) -> StartRequest {
    let environment = [("A".into(), "1".into()), ("B".into(), "2".into()), ("PINFOLD_ID".into(), "k3".into())];
    let args = parsed(line);
    let environment = super::environment(&args, environment.into_iter()).expect("an environment");
    let mut request = request(&args, environment.variables).expect("a request");
    args.notify.apply(&mut request, Some("inherited".into()));
    request
}

#[test]
fn one_argument_is_a_script_and_several_are_a_program() {
    assert_eq!(asked(&["echo a | wc"]).command.as_deref(), Some("echo a | wc"));
    assert_eq!(asked(&["true"]).command.as_deref(), Some("true"));
    assert_eq!(asked(&["-c", "x; y"]).command.as_deref(), Some("x; y"));
    let request = asked(&["ls", "-la", "--json", "/x"]);
    assert_eq!(request.argv.as_deref(), Some(&["ls", "-la", "--json", "/x"].map(String::from)[..]));
    assert_eq!(request.command, None);
    assert_eq!(asked(&["-d", "--", "-x", "y"]).argv.as_deref(), Some(&["-x", "y"].map(String::from)[..]));
}

#[test]
fn the_callers_environment_is_sent_whole_and_changed_as_asked() {
    let request = asked(&["-e", "C=x=y", "--env", "A=", "--unset", "B", "true"]);
    assert_eq!(request.inherit_env, Some(false));
    let expected = [("A", ""), ("C", "x=y")].map(|(name, value)| (name.to_owned(), Some(value.to_owned())));
    assert_eq!(request.env, expected.into());
}

#[test]
fn the_directory_is_absolute_and_the_key_is_there() {
    let here = asked(&["true"]);
    assert!(here.cwd.expect("a cwd").starts_with('/'));
    assert!(here.idempotency_key.expect("a key").starts_with("run-"));
    let there = asked(&["--cwd", "sub", "--key", "k", "true"]);
    let cwd = there.cwd.expect("a cwd");
    assert!(cwd.starts_with('/') && cwd.ends_with("/sub"));
    assert_eq!(there.env.get("PWD"), Some(&Some(cwd)));
    assert_eq!(there.idempotency_key.as_deref(), Some("k"));
}

#[test]
fn every_option_reaches_the_request() {
    let line = "--name n --owner o --label k=v --shell bash --time-limit 5m --grace 2s --stop-signal INT \
                --strays stop --streams separate --output-limit 1M x";
    let request = asked(&line.split_whitespace().collect::<Vec<_>>());
    assert_eq!((request.name.as_deref(), request.owner.as_deref()), (Some("n"), Some("o")));
    assert_eq!(request.labels, [("k".to_owned(), "v".to_owned())].into());
    assert_eq!(request.shell.as_deref(), Some("bash"));
    assert_eq!((request.time_limit, request.grace), (Some("5m".into()), Some("2s".into())));
    assert_eq!(request.stop_signal.as_deref(), Some("INT"));
    assert_eq!((request.strays, request.streams), (Some(Strays::Stop), Some(Streams::Separate)));
    assert_eq!(request.output_limit, Some("1M".into()));
}

#[test]
fn notification_options_reach_the_request() {
    let line = "--parent p --lifetime parent --owner-grace 1m --idle-limit 2m --intent why --notify-pattern A \
                --notify-pattern B --heartbeat 5m --webhook http://x/ --on-end-command say x";
    let request = asked(&line.split_whitespace().collect::<Vec<_>>());
    assert_eq!((request.owner.as_deref(), request.parent.as_deref()), (Some("inherited"), Some("p")));
    assert_eq!((request.lifetime, request.owner_grace), (Some(Lifetime::Parent), Some("1m".into())));
    assert_eq!((request.idle_limit, request.intent.as_deref()), (Some("2m".into()), Some("why")));
    let notify = request.notify.expect("something to tell");
    assert_eq!((notify.patterns, notify.heartbeat), (vec!["A".into(), "B".into()], Some("5m".into())));
    assert_eq!((notify.webhook.as_deref(), notify.command.as_deref()), (Some("http://x/"), Some("say")));
    assert_eq!(asked(&["x"]).notify, None);
}

#[test]
fn invalid_arguments_are_refused() {
    for line in
        [&[][..], &["-e", "A", "x"], &["--strays", "eat", "x"], &["-c", "x", "y"], &["-d", "--timeout", "1", "x"]]
    {
        assert!(Line::try_parse_from([&["run"], line].concat()).is_err(), "{line:?}");
    }
    for line in [&["--shell", "bash", "a", "b"][..], &[" "], &["-c", ""], &["", "x"]] {
        let error = request(&parsed(line), BTreeMap::new()).expect_err("refused");
        assert_eq!(error.exit, 2);
    }
}
