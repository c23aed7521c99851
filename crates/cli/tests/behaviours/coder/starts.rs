//! Starting: ids, errors, bodies, directories, environments.

use std::collections::HashSet;

use pinfold_testkit::{Pinfold, Setup, until};
use serde_json::json;

use super::{ALICE, BOB, Client, with_settings};
use crate::PINFOLD;

#[test]
fn start_ok() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    let mut seen = HashSet::new();
    for _ in 0..5 {
        let reply = client.post("/start", &json!({ "command": "echo hi" }));
        assert_eq!((reply.status, &reply.json()["started"]), (200, &json!(true)));
        let id = reply.json()["id"].as_str().expect("an id").to_owned();
        let groups: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!(groups, [8, 4, 4, 4, 12], "{id}");
        assert!(id.as_bytes()[14] == b'4' && b"89ab".contains(&id.as_bytes()[19]), "{id}");
        assert_eq!(client.waited(&id)["output"], "hi\n");
        assert_eq!(client.listed(&id)["background"], false);
        assert!(seen.insert(id));
    }
}

#[test]
fn start_background_ok() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    let reply = client.post("/start", &json!({ "command": "sleep 300", "background": true }));
    assert_eq!((reply.status, &reply.json()["started"]), (200, &json!(true)));
    let id = reply.json()["id"].as_str().expect("an id").to_owned();
    let info = client.listed(&id);
    assert_eq!((&info["background"], &info["running"]), (&json!(true), &json!(true)));
}

#[test]
fn start_errors() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    for body in ["{invalid json", "", "[]", "7", r#"{"command":7}"#, r#"{"command":"true","env":{"A":1}}"#] {
        let reply = client.send("POST", "/start", body.as_bytes());
        assert_eq!(reply.error(), (400, "Request body must be valid JSON.".to_owned()), "{body}");
        assert!(!reply.detail().is_empty(), "{body}");
    }
    for body in [json!({}), json!({ "command": "" }), json!({ "workdir": "/nope" })] {
        assert_eq!(client.post("/start", &body).error(), (400, "Command is required.".to_owned()));
    }
    for workdir in ["/nope/not/there", "/dev/null", "relative"] {
        let reply = client.post("/start", &json!({ "command": "true", "workdir": workdir }));
        assert_eq!(reply.error(), (500, "Failed to start process.".to_owned()), "{workdir}");
        let detail = reply.detail();
        assert!(detail.starts_with("start process: ") && detail.contains(workdir), "{detail}");
    }
    assert_eq!(client.list().len(), 0, "a start that failed leaves nothing");
    // Whitespace is a command that does nothing.
    let id = client.start(" \n");
    assert_eq!(client.waited(&id)["exit_code"], 0);
    assert_eq!(client.listed(&id)["command"], " \n");
}

#[test]
fn start_errors_without_a_shell() {
    // The nursery and the keepers need no shell; only the commands do.
    let env = vec![("PATH".to_owned(), "/nowhere".to_owned())];
    let pinfold = Pinfold::start_with(PINFOLD, Setup { env, ..Setup::default() });
    let reply = Client::new(&pinfold).post("/start", &json!({ "command": "true" }));
    assert_eq!(reply.error(), (500, "Failed to start process.".to_owned()));
    assert_eq!(reply.detail(), "start process: exec: \"sh\": executable file not found in $PATH");
}

#[test]
fn body_lenient() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    for body in [
        r#"{"command":"echo hi","unknown":{"deep":[1]}}"#,
        r#"{"COMMAND":"echo hi"} and {more"#,
        r#"{"command":"false","Command":"echo hi","env":null,"workdir":null,"background":null}"#,
        "\n\t {\"command\":\"echo hi\"}",
        r#"{"command":"echo hi","x":"\ud800","\udfff":1e9999}"#,
        &format!(r#"{{"x":{}{},"command":"echo hi"}}"#, "[".repeat(5_000), "]".repeat(5_000)),
        "{\"command\":\"false\",\"bac\u{212a}ground\":true,\"wor\u{212a}dir\":\"/\",\"command\":\"echo hi\"}",
    ] {
        let head = "POST /api/v0/processes/start HTTP/1.1\r\nHost: p\r\nConnection: close\r\nContent-Type: text/plain";
        let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let reply = client.raw(request.as_bytes());
        assert_eq!(reply.status, 200, "{body}: {reply:?}");
        let id = reply.json()["id"].as_str().expect("an id").to_owned();
        assert_eq!(client.waited(&id)["output"], "hi\n", "{body}");
    }
    assert_eq!(client.send("POST", "/start", b"null").error(), (400, "Command is required.".to_owned()));
}

#[test]
fn workdir_default_chain() {
    let place = |name: &str| {
        let path = std::env::temp_dir().join(format!("pinfold-coder-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        std::fs::canonicalize(path).expect("a path").to_string_lossy().into_owned()
    };
    let (home, set_up, asked) = (place("home"), place("set-up"), place("asked"));
    let config = format!("[coder]\nworkdir = \"{set_up}\"\n");
    let env = vec![("HOME".to_owned(), home.clone())];
    let pinfold = Pinfold::start_with(PINFOLD, Setup { config, env, ..Setup::default() });
    let client = Client::new(&pinfold);
    let ran_in = |body: serde_json::Value| {
        let id = client.start_with(&body);
        let printed = client.waited(&id)["output"].as_str().expect("a text").trim_end().to_owned();
        assert_eq!(client.listed(&id)["workdir"], printed, "the list shows where it ran");
        printed
    };
    assert_eq!(ran_in(json!({ "command": "pwd", "workdir": &asked })), asked);
    assert_eq!(ran_in(json!({ "command": "pwd" })), set_up);
    assert_eq!(ran_in(json!({ "command": "pwd", "workdir": "" })), set_up);
    // A file in its place, then nothing: the home directory is used.
    std::fs::remove_dir(&set_up).expect("removed");
    std::fs::write(&set_up, "").expect("a file");
    assert_eq!(ran_in(json!({ "command": "pwd" })), home);
    std::fs::remove_file(&set_up).expect("removed");
    assert_eq!(ran_in(json!({ "command": "pwd" })), home);
    std::os::unix::fs::symlink(&asked, &set_up).expect("a link");
    assert_eq!(client.run(&json!({ "command": "pwd -P" })).trim_end(), asked);
    drop(pinfold);
    std::fs::remove_file(&set_up).expect("removed");
    [home, asked].iter().for_each(|path| std::fs::remove_dir(path).expect("removed"));
}

#[test]
fn env_precedence() {
    let hook = r#"printf 'BASE=hook\nHOOK=hook\nASKED=hook\nCODER_CHAT_ID=hook\nnot a variable\n'"#;
    let config = format!("[coder]\nenv_command = '''{hook}'''\n");
    let env = ["BASE", "ONLY", "CODER_CHAT_ID"].map(|name| (name.to_owned(), "base".to_owned())).to_vec();
    let pinfold = Pinfold::start_with(PINFOLD, Setup { config, env, ..Setup::default() });
    let client = Client::new(&pinfold);
    let print = "echo $ONLY $BASE $HOOK $ASKED $CODER_CHAT_ID";
    let asked = json!({ "ASKED": "asked", "CODER_CHAT_ID": "asked", "PINFOLD_ID": "forged" });
    let body = json!({ "command": format!("{print}; test $PINFOLD_ID != forged"), "env": asked });
    assert_eq!(client.run(&body), "base hook hook asked asked\n");
    assert_eq!(client.chat(ALICE).run(&body), format!("base hook hook asked {ALICE}\n"));
    // Whatever form of the UUID was sent, the child gets the canonical one.
    let (urn, braces) = (format!("urn:uuid:{ALICE}"), format!("{{{}}}", BOB.to_uppercase()));
    assert_eq!(client.chat(&urn).run(&json!({ "command": "echo $CODER_CHAT_ID" })), format!("{ALICE}\n"));
    assert_eq!(client.chat(&braces).run(&json!({ "command": "echo $CODER_CHAT_ID" })), format!("{BOB}\n"));
}

/// Name and value are joined to `NAME=VALUE` and split at the first `=` by the reader, as everywhere.
#[test]
fn odd_names_in_the_environment_run() {
    let pinfold = Pinfold::start(PINFOLD);
    let client = Client::new(&pinfold);
    // A shell passes on only names that it can use itself, so its own environment is read.
    const PRINT: &str = r"tr '\0' '\n' < /proc/$$/environ | grep -aE '^(a-b.c|2nd|with space|ünï|SPLIT|)='";
    let env = json!({
        "a-b.c": "1", "2nd": "2", "with space": "3", "ünï": "4", "SPLIT=at": "first", "": "none", "=x": "none",
        "PINFOLD_READY_SOCKET": "none",
    });
    let body = json!({ "command": PRINT, "env": env });
    let printed = client.run(&body);
    let mut lines: Vec<&str> = printed.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["2nd=2", "SPLIT=at=first", "a-b.c=1", "with space=3", "ünï=4"]);
}

#[test]
fn env_precedence_without_the_hook() {
    let pinfold = with_settings("env_command = \"echo BASE=half; exit 3\"");
    let client = Client::new(&pinfold);
    assert_eq!(client.run(&json!({ "command": "echo [$BASE] $A", "env": { "A": "1" } })), "[] 1\n");
    let log = || std::fs::read_to_string(pinfold.home().join("daemon.log")).expect("a log");
    until("a warning", || log().lines().any(|line| line.contains("WARN") && line.contains("env_command")));
    assert!(!log().contains("BASE=half"), "what it said may be secret");
}
