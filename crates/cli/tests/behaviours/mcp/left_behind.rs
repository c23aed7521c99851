//! The next session of the same client in the same directory finds what an ended session left running; no other session
//! does.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use pinfold_api::client::ClientError;
use pinfold_api::error::ErrorCode;
use pinfold_api::types::{
    AdoptRequest, InputRequest, ServerProcess, SessionRequest, StartRequest, Stdin, TokenRequest,
};
use pinfold_testkit::{Pidfd, Pinfold, Setup, children_of, until};
use serde_json::{Value, json};

use super::agent::{Agent, Called, shim};
use crate::PINFOLD;

/// A session of this client in this directory.
fn session(mut command: Command, client: &str, directory: &Path) -> Agent {
    let mut agent = Agent::spawn({
        command.current_dir(directory);
        command
    });
    let info = json!({ "name": client, "version": "1" });
    agent.request("initialize", json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info }));
    agent.notify("notifications/initialized", json!({}));
    agent
}

fn usual(pinfold: &Pinfold) -> Agent {
    session(shim(pinfold, &[]), "tester", pinfold.home())
}

fn kill(agent: &mut Agent) {
    Pidfd::open(agent.shim.id()).expect("a shim").kill();
    agent.shim.wait().expect("our child");
}

fn list(agent: &mut Agent, arguments: Value) -> Called {
    let listed = agent.call("process_list", arguments);
    assert!(!listed.is_error, "{}", listed.text);
    listed
}

fn ids(called: &Called, key: &str) -> Vec<String> {
    let entries = called.facts[key].as_array().cloned().unwrap_or_default();
    let mut ids: Vec<String> =
        entries.iter().filter_map(|entry| entry["id"].as_str().or(entry.as_str()).map(str::to_owned)).collect();
    ids.sort();
    ids
}

fn left(agent: &mut Agent) -> Vec<String> {
    ids(&list(agent, json!({})), "left_behind")
}

fn sorted(mut ids: Vec<String>) -> Vec<String> {
    ids.sort();
    ids
}

#[test]
fn what_an_ended_session_left_is_shown_and_taken_over_in_one_call() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut first = usual(&pinfold);
    let (one, two) = (first.background("exec sleep 300"), first.background("exec sleep 301"));
    first.execute("true");
    kill(&mut first);
    let mut second = usual(&pinfold);
    let listed = list(&mut second, json!({}));
    assert_eq!(ids(&listed, "left_behind"), sorted(vec![one.clone(), two.clone()]), "{}", listed.text);
    assert_eq!(ids(&listed, "processes"), Vec::<String>::new(), "{}", listed.text);
    assert!(listed.text.contains("exec sleep 300") && listed.notes().contains(r#"process_list {"adopt":"all"}"#));
    assert!(listed.facts["left_behind"][0]["session_ended"].as_str().is_some_and(|ago| ago.ends_with("ago")));
    let refused = second.call("process_output", json!({ "id": one }));
    assert_eq!(refused.facts["code"], "not_found", "a list is not a view: {}", refused.text);
    assert_eq!(refused.facts["right_call"], format!(r#"process_list {{"adopt":"{one}"}}"#));
    let taken = list(&mut second, json!({ "adopt": "all" }));
    assert_eq!(ids(&taken, "adopted"), sorted(vec![one.clone(), two.clone()]), "{}", taken.text);
    assert_eq!(ids(&taken, "processes"), sorted(vec![one.clone(), two.clone()]), "{}", taken.text);
    assert_eq!(ids(&taken, "left_behind"), Vec::<String>::new());
    assert_eq!((taken.news(), list(&mut second, json!({})).news()), (vec![], vec![]), "it knows what it took over");
    assert_eq!(second.call("process_output", json!({ "id": one })).facts["state"], "running");
}

#[test]
fn the_end_of_what_was_taken_over_is_news_once() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut first = usual(&pinfold);
    let id = first.background("exec sleep 300");
    kill(&mut first);
    let mut second = usual(&pinfold);
    assert_eq!(ids(&list(&mut second, json!({ "adopt": id })), "adopted"), [id.as_str()]);
    pinfold.signal(&id, "KILL").expect("reached");
    pinfold.wait_finished(&id);
    let mut news = Vec::new();
    until("its end is news", || {
        news.extend(second.execute("true").news());
        !news.is_empty()
    });
    assert_eq!((news.len(), &news[0]["id"], &news[0]["event"]), (1, &json!(id), &json!("ended")), "{news:?}");
    assert_eq!(second.execute("true").news(), Vec::<Value>::new());
}

/// Restart policy, name and labels stay with the process: its next restart belongs to the new owner.
#[test]
fn the_next_restart_of_a_process_taken_over_belongs_to_the_new_owner() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut first = usual(&pinfold);
    // Each file `go` ends one run.
    let life = "until rm go 2>/dev/null; do sleep 0.05; done";
    let command = json!({ "command": life, "background": true, "restart": "always", "name": "web" });
    let id = first.call("execute", command).id().to_owned();
    kill(&mut first);
    let mut second = usual(&pinfold);
    list(&mut second, json!({ "adopt": "all" }));
    std::fs::write(pinfold.home().join("go"), "").expect("written");
    until("another life is the new owner's", || {
        let listed = list(&mut second, json!({ "status": "live" }));
        let entries = listed.facts["processes"].as_array().cloned().unwrap_or_default();
        entries.iter().any(|entry| entry["name"] == "web" && entry["id"] != json!(id))
    });
    pinfold.cli(&["stop", "web"]);
}

#[test]
fn d9_only_an_ended_sessions_processes_are_shown_to_another_session() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut first = usual(&pinfold);
    let id = first.background("exec sleep 300");
    let owner = pinfold.show(&id).owner;
    let mut second = usual(&pinfold);
    let mut check = || {
        assert_eq!(left(&mut second), Vec::<String>::new());
        let all = list(&mut second, json!({ "adopt": "all" }));
        assert_eq!(ids(&all, "adopted"), Vec::<String>::new(), "{}", all.text);
        assert!(all.notes().contains("nothing is left behind"), "{}", all.text);
        let one = list(&mut second, json!({ "adopt": [id] }));
        assert!(one.notes().contains("was not taken over"), "{}", one.text);
        let refused = second.call("process_output", json!({ "id": id }));
        assert!(refused.facts["code"] == "not_found" && refused.facts["right_call"].is_null(), "{}", refused.text);
        assert_eq!(pinfold.show(&id).owner, owner);
    };
    check();
    // The first session sends nothing to the new daemon, which still knows that it is alive.
    pinfold.crash_and_restart();
    check();
    kill(&mut first);
    assert_eq!(left(&mut second), [id]);
}

/// A client whose server was killed may start another one: its session has not ended.
#[test]
fn d9_a_session_whose_client_lives_without_its_server_is_shown_to_no_other_client() {
    let pinfold = Pinfold::start(PINFOLD);
    let server = shim(&pinfold, &[]);
    let mut client = Command::new("/bin/sh");
    client.args(["-c", r#""$@"; exec sleep 300"#, "sh"]).arg(server.get_program()).args(server.get_args());
    client.envs(server.get_envs().filter_map(|(name, value)| Some((name, value?))));
    client.env_remove("CLAUDE_CODE_SESSION_ID").env_remove("PINFOLD_OWNER");
    let mut first = session(client, "tester", pinfold.home());
    let id = first.background("exec sleep 300");
    let server = children_of(first.shim.id());
    Pidfd::open(*server.first().expect("a server")).expect("it lives").kill();
    let mut second = usual(&pinfold);
    assert_eq!(left(&mut second), Vec::<String>::new());
    pinfold.crash_and_restart();
    assert_eq!(left(&mut second), Vec::<String>::new());
    kill(&mut first);
    assert_eq!(left(&mut second), [id]);
}

#[test]
fn a_daemon_that_was_killed_or_absent_still_knows_an_ended_session() {
    let pinfold = Pinfold::start(PINFOLD);
    let (mut first, mut other) = (usual(&pinfold), usual(&pinfold));
    let (id, later) = (first.background("exec sleep 300"), other.background("exec sleep 301"));
    kill(&mut first);
    let mut second = usual(&pinfold);
    assert_eq!(left(&mut second), [id.as_str()]);
    pinfold.crash_and_restart();
    assert_eq!(left(&mut second), [id.as_str()]);
    pinfold.kill_daemon();
    // It ends while no daemon runs.
    kill(&mut other);
    assert_eq!(left(&mut second), sorted(vec![id.clone(), later.clone()]));
    pinfold.kill_daemon();
    let taken = list(&mut second, json!({ "adopt": "all" }));
    assert_eq!(ids(&taken, "adopted"), sorted(vec![id, later]), "{}", taken.text);
}

#[test]
fn of_two_sessions_that_take_over_one_gets_each_process_and_the_other_an_error() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut first = usual(&pinfold);
    let id = first.background("exec sleep 300");
    kill(&mut first);
    let mut pair = [usual(&pinfold), usual(&pinfold)];
    for agent in &mut pair {
        assert_eq!(left(agent), [id.as_str()]);
    }
    let calls = pair.each_mut().map(|agent| agent.begin_call("process_list", json!({ "adopt": id })));
    let [a, b] = [0, 1].map(|place| pair[place].called(calls[place]));
    let adopted = [ids(&a, "adopted"), ids(&b, "adopted")].concat();
    assert_eq!(adopted, [id.as_str()], "{}\n{}", a.text, b.text);
    let loser = if ids(&a, "adopted").is_empty() { &a } else { &b };
    assert!(loser.notes().contains(&format!("{id} was not taken over")), "{}", loser.text);
    assert_eq!(ids(loser, "processes"), Vec::<String>::new(), "{}", loser.text);
    let owned =
        pair.iter_mut().filter_map(|agent| (!ids(&list(agent, json!({})), "processes").is_empty()).then_some(()));
    assert_eq!(owned.count(), 1);
}

#[test]
fn another_directory_client_or_named_owner_sees_nothing() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut first = usual(&pinfold);
    let id = first.background("exec sleep 300");
    let mut named = session(shim(&pinfold, &["--owner", "bot"]), "tester", pinfold.home());
    let bots = named.background("exec sleep 301");
    kill(&mut first);
    kill(&mut named);
    let elsewhere = pinfold.home().join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("a directory");
    let link = pinfold.home().join("link");
    std::os::unix::fs::symlink(pinfold.home(), &link).expect("a link");
    assert_eq!(left(&mut session(shim(&pinfold, &[]), "tester", &elsewhere)), Vec::<String>::new());
    assert_eq!(left(&mut session(shim(&pinfold, &[]), "another", pinfold.home())), Vec::<String>::new());
    let mut bot = session(shim(&pinfold, &["--owner", "other"]), "tester", pinfold.home());
    assert_eq!(left(&mut bot), Vec::<String>::new());
    let refused = bot.call("process_list", json!({ "adopt": "all" }));
    assert!(refused.is_error && refused.text.contains("takes nothing over"), "{}", refused.text);
    // The same directory by another path, and without what was started for a named owner.
    assert_eq!(left(&mut session(shim(&pinfold, &[]), "tester", &link)), [id.as_str()]);
    let mut again = session(shim(&pinfold, &["--owner", "bot"]), "tester", pinfold.home());
    assert_eq!(ids(&list(&mut again, json!({})), "processes"), [bots]);
}

/// Shell code that talks to a server inside a managed process.
fn ask_inside(pinfold: &Pinfold, server: &str, number: u64, tool: &str, arguments: Value) -> String {
    let call = json!({ "jsonrpc": "2.0", "id": number, "method": "tools/call",
                       "params": { "name": tool, "arguments": arguments } });
    let info = json!({ "name": "tester", "version": "1" });
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info });
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let lines = if number == 2 { format!("{hello}\n{ready}\n{call}\n") } else { format!("{call}\n") };
    let input = InputRequest { text: Some(lines), ..InputRequest::default() };
    pinfold.block(pinfold.client().input(server, &input)).expect("sent");
    let mark = format!("\"id\":{number},");
    let mut answer = String::new();
    until("the server inside answers", || {
        let text = pinfold.text(server);
        answer = text.lines().find(|line| line.contains(&mark)).unwrap_or_default().to_owned();
        !answer.is_empty()
    });
    answer
}

fn serve_inside(pinfold: &Pinfold, owner: &str) -> String {
    let request = StartRequest {
        command: Some(format!("exec {} mcp", pinfold.binary().display())),
        cwd: Some(pinfold.home().to_string_lossy().into_owned()),
        env: [("CLAUDE_CODE_SESSION_ID".to_owned(), None)].into(),
        stdin: Some(Stdin::Pipe),
        ..StartRequest::default()
    };
    pinfold.block(pinfold.client().acting_as(owner, None).start(&request)).expect("it starts").record.id
}

#[test]
fn a_session_inside_a_process_sees_only_what_is_below_the_same_owner() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut first = usual(&pinfold);
    let outside = first.background("exec sleep 300");
    kill(&mut first);
    let server = serve_inside(&pinfold, "ann");
    let started =
        ask_inside(&pinfold, &server, 2, "execute", json!({ "command": "exec sleep 301", "background": true }));
    assert!(!started.contains("isError\":true"), "{started}");
    let inside =
        pinfold.list(&Default::default()).processes.into_iter().find(|process| process.command == "exec sleep 301");
    let inside = inside.expect("it runs").id;
    let listed = ask_inside(&pinfold, &server, 3, "process_list", json!({}));
    assert!(listed.contains(&inside) && !listed.contains("left_behind") && !listed.contains(&outside), "{listed}");
    pinfold.stop(&server);
    // Below another owner, and without an owner: nothing of ann's is shown.
    let bobs = serve_inside(&pinfold, "bob");
    let listed = ask_inside(&pinfold, &bobs, 2, "process_list", json!({}));
    assert!(!listed.contains(&inside) && !listed.contains(&outside), "{listed}");
    assert_eq!(left(&mut usual(&pinfold)), [outside.as_str()]);
    // Below the same owner, it is.
    let second = serve_inside(&pinfold, "ann");
    let taken = ask_inside(&pinfold, &second, 2, "process_list", json!({ "adopt": "all" }));
    assert!(taken.contains("adopted") && taken.contains(&inside) && !taken.contains(&outside), "{taken}");
}

/// A client that acts as an owner but is not the server of its session gets nothing.
#[test]
fn only_the_server_of_a_session_may_ask_for_what_was_left() {
    let config = "[tcp]\nlisten = \"127.0.0.1:0\"\n".to_owned();
    let pinfold = Pinfold::start_with(PINFOLD, Setup { config, ..Setup::default() });
    let (mut first, mut second) = (usual(&pinfold), usual(&pinfold));
    first.background("exec sleep 300");
    let own = second.background("exec sleep 301");
    kill(&mut first);
    let code = |error: ClientError| if let ClientError::Api { error, .. } = error { Some(error.code) } else { None };
    let owner = pinfold.show(&own).owner;
    let as_second = pinfold.client().acting_as(&owner, None);
    let listed = pinfold.block(as_second.left_behind()).expect_err("not its server");
    let adopted = pinfold.block(as_second.adopt(&AdoptRequest::default())).expect_err("not its server");
    assert_eq!([code(listed), code(adopted)], [Some(ErrorCode::Forbidden); 2]);
    let place = |pid: u32| SessionRequest {
        client: "tester".into(),
        directory: "/".into(),
        server: ServerProcess { pid, start_time: 1 },
        instead_of: None,
    };
    for pid in [std::process::id(), second.shim.id(), pinfold.daemon_pid()] {
        let refused = pinfold.block(as_second.register_session(&place(pid))).expect_err("not who it says");
        assert_eq!(code(refused), Some(ErrorCode::Forbidden));
    }
    let unnamed = pinfold.block(pinfold.client().register_session(&place(1))).expect_err("no owner");
    assert_eq!(code(unnamed), Some(ErrorCode::InvalidRequest));
    let request = TokenRequest { owner: Some(owner), ..TokenRequest::default() };
    let token = pinfold.block(pinfold.client().add_token(&request)).expect("a token").token;
    for (line, body) in [
        ("GET /v1/sessions/left_behind", String::new()),
        ("POST /v1/sessions/adopt", "{}".to_owned()),
        ("POST /v1/sessions", serde_json::to_string(&place(second.shim.id())).expect("JSON")),
    ] {
        let mut tcp = TcpStream::connect(pinfold.health().tcp.expect("it listens")).expect("connected");
        let length = body.len();
        let head =
            format!("{line} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\nconnection: close\r\n");
        tcp.write_all(
            format!("{head}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}").as_bytes(),
        )
        .expect("sent");
        let mut answer = String::new();
        tcp.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("forbidden"), "{line}: {answer}");
    }
}

/// The file that Claude Code writes about itself, for a client played by this test.
fn say_session(home: &Path, session: &str) {
    let sessions = home.join(".claude/sessions");
    std::fs::create_dir_all(&sessions).expect("a directory");
    let pid = std::process::id();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("ours");
    let start = stat.rsplit_once(") ").and_then(|(_, fields)| fields.split(' ').nth(19)).expect("a start time");
    let about = json!({ "pid": pid, "procStart": start, "sessionId": session, "kind": "interactive" });
    std::fs::write(sessions.join(format!("{pid}.json")), about.to_string()).expect("written");
}

fn claude(pinfold: &Pinfold, session_at_start: &str) -> Agent {
    let mut command = shim(pinfold, &[]);
    command.env("HOME", pinfold.home()).env_remove("CLAUDE_CONFIG_DIR");
    command.env("CLAUDE_CODE_SESSION_ID", session_at_start);
    session(command, "claude-code", pinfold.home())
}

#[test]
fn the_current_claude_session_owns_processes_and_they_move_with_it() {
    let pinfold = Pinfold::start(PINFOLD);
    // The id in the environment is wrong from the start, as with `claude -p --continue`.
    say_session(pinfold.home(), "one");
    let mut agent = claude(&pinfold, "wrong");
    let id = agent.background("exec sleep 300");
    assert_eq!(pinfold.show(&id).owner, "claude-one");
    say_session(pinfold.home(), "two");
    let listed = list(&mut agent, json!({}));
    assert_eq!(ids(&listed, "processes"), [id.as_str()], "{}", listed.text);
    assert_eq!(pinfold.show(&id).owner, "claude-two");
    assert_eq!(listed.news().len() + list(&mut agent, json!({})).news().len(), 1, "it is reported to the new chat");
    // Two clients in one session: the one that leaves takes no process from the other.
    let mut beside = claude(&pinfold, "two");
    beside.execute("true");
    let mut file = pinfold.home().to_owned();
    file.push("other");
    say_session(&file, "three");
    let mut leaving = {
        let mut command = shim(&pinfold, &[]);
        command.env("HOME", &file).env_remove("CLAUDE_CONFIG_DIR").env("CLAUDE_CODE_SESSION_ID", "x");
        session(command, "claude-code", pinfold.home())
    };
    say_session(&file, "two");
    leaving.execute("true");
    say_session(&file, "four");
    assert_eq!(ids(&list(&mut leaving, json!({})), "processes"), Vec::<String>::new());
    assert_eq!(pinfold.show(&id).owner, "claude-two");
    // Without that file, the environment is used.
    std::fs::remove_dir_all(pinfold.home().join(".claude")).expect("removed");
    let mut plain = claude(&pinfold, "five");
    assert_eq!(pinfold.show(&plain.background("exec sleep 300")).owner, "claude-five");
}
