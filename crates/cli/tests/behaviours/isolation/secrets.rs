//! Values of environment variables reach the process, and are visible nowhere else.

use pinfold_api::types::{ListQuery, StartRequest};
use pinfold_testkit::{Pidfd, Pinfold, Setup};

use crate::PINFOLD;
use crate::records::files_in;

const SECRET: &str = "hunter2-that-must-not-be-visible";

#[test]
fn secrets_not_exposed() {
    let config = "log = \"trace\"\n".into();
    let env = vec![("INHERITED".to_owned(), format!("{SECRET}-of-the-daemon"))];
    let pinfold = Pinfold::start_with(PINFOLD, Setup { config, env, user: None });
    let with_secret = |command: &str| StartRequest {
        command: Some(command.into()),
        env: [("TOKEN".to_owned(), Some(SECRET.to_owned()))].into(),
        ..StartRequest::default()
    };
    let mut seen = String::new();

    let lost = pinfold.start_request(&with_secret("sleep 300")).record.id;
    Pidfd::open(pinfold.keeper_pid(&lost)).expect("a keeper").kill();
    seen += &format!("{:?}", pinfold.wait_finished(&lost));
    let ended = pinfold.start_request(&with_secret(r#"[ ${#TOKEN} = 32 ] && [ "$INHERITED" ] && exit 5"#));
    seen += &format!("{ended:?}{:?}", pinfold.wait_finished(&ended.record.id));
    assert!(seen.contains("code: 5"), "the process itself has it: {seen}");
    let running = pinfold.start_request(&with_secret("setsid sleep 300 & sleep 300; :")).record.id;
    let cli = pinfold.cli(&["run", "-d", "--env", &format!("CLI_TOKEN={SECRET}"), "sleep 300"]);
    seen += &format!("{cli:?}");

    let errors = [
        StartRequest { cwd: Some("/nowhere".into()), ..with_secret("true") },
        StartRequest { shell: Some("/no/shell".into()), ..with_secret("true") },
        StartRequest { env: [("PINFOLD_ID".into(), Some(SECRET.into()))].into(), ..with_secret("true") },
        StartRequest { env: [("A".into(), Some(format!("{SECRET}\0")))].into(), ..with_secret("true") },
        StartRequest { env: [("A=B".into(), Some(SECRET.into()))].into(), ..with_secret("true") },
        StartRequest { time_limit: Some("soon".into()), ..with_secret("true") },
    ];
    for request in errors {
        seen += &format!("{:?}", pinfold.try_start(&request).expect_err("refused"));
    }
    seen += &format!("{:?}{:?}", pinfold.show(&running), pinfold.list(&ListQuery::default()));
    seen += &format!("{:?}{:?}", pinfold.events(0), pinfold.health());
    seen += &pinfold.block(pinfold.client().metrics()).expect("metrics");
    pinfold.crash_and_restart();
    seen += &format!("{:?}{:?}", pinfold.stop(&running), pinfold.events(0));
    for command in [vec!["show", &running], vec!["ps", "--all"], vec!["events"], vec!["doctor"], vec!["config"]] {
        seen += &format!("{:?}", pinfold.cli(&command));
    }
    assert!(!seen.contains(SECRET), "{seen}");

    let files = files_in(pinfold.home());
    assert!(files.iter().any(|path| path.ends_with("daemon.log")) && files.iter().any(|path| path.ends_with("record")));
    for path in files {
        let bytes = std::fs::read(&path).expect("a file");
        let found = bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes());
        assert!(!found, "{} holds a secret", path.display());
    }
}
