//! Homes of every released format, as a killed daemon left them, each with the responses of that daemon.
//!
//! A release with a new format adds one: `FIXTURE=home-N cargo test -p pinfold --test behaviours -- --ignored
//! upgrade::fixtures` writes a home of this version. Existing fixtures are never rewritten.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pinfold_api::types::{EventsQuery, HandoverRequest, ListQuery, StartRequest, StopRequest, Streams};
use pinfold_store::layout::HOME_FORMAT;
use pinfold_testkit::{Pidfd, Pinfold, until};
use serde_json::{Value, json};

use crate::PINFOLD;
use crate::crash::damage::fold_log_into_index;

/// A fixture.
#[derive(Clone, Debug)]
pub(super) struct Fixture(PathBuf);

impl Fixture {
    /// All there are, oldest first.
    pub(super) fn all() -> Vec<Self> {
        let entries = std::fs::read_dir(directory()).expect("fixtures").flatten();
        let homes = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("home-"));
        let mut found: Vec<_> = homes.map(|entry| Self(entry.path())).collect();
        found.sort_by(|one, other| one.0.cmp(&other.0));
        found
    }

    pub(super) fn unpack(&self, home: &Path) {
        let archive = self.0.join("home.tar.gz");
        let tar = Command::new("tar").args(["--no-same-owner", "-xzpf"]).arg(archive).arg("-C").arg(home).status();
        assert!(tar.expect("tar").success());
    }

    pub(super) fn expected(&self) -> Value {
        let text = std::fs::read_to_string(self.0.join("expected.json")).expect("what was answered");
        serde_json::from_str(&text).expect("json")
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/fixtures")
}

/// A changed format needs a new fixture; without one, no test would notice that it can no longer be read.
#[test]
fn the_present_formats_have_a_fixture() {
    let pinfold = Pinfold::start(PINFOLD);
    pinfold.sh("exit 0");
    pinfold.kill_daemon();
    until("idle keepers leave", || pinfold.keepers().is_empty());
    fold_log_into_index(pinfold.home());
    let index = std::fs::read(pinfold.home().join("index.db")).expect("an index");
    let version = u32::from_be_bytes(index[60..64].try_into().expect("four bytes"));
    assert_eq!((HOME_FORMAT, version), (1, 2), "add a fixture of the new format, and say here that there is one");
    assert_eq!(Fixture::all().len(), 2);
}

#[test]
#[ignore = "writes a fixture: see above"]
fn write_a_fixture() {
    let name = std::env::var("FIXTURE").expect("FIXTURE names the fixture to write");
    let fixture = directory().join(name);
    std::fs::create_dir(&fixture).expect("a fixture that is not there yet");
    let pinfold = Pinfold::start(PINFOLD);
    live(&pinfold);
    let list = pinfold.list(&ListQuery::default());
    let text = |record: &pinfold_api::types::Record| (record.id.clone(), pinfold.text(&record.id).into());
    let expected = json!({
        "processes": list.processes.iter().map(|record| pinfold.show(&record.id)).collect::<Vec<_>>(),
        "events": pinfold.events(0).events,
        "output": list.processes.iter().map(text).collect::<serde_json::Map<String, Value>>(),
        "consumers": pinfold.block(pinfold.client().consumers()).expect("consumers").consumers,
    });
    pinfold.kill_daemon();
    until("idle keepers leave", || pinfold.keepers().is_empty());
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.args(
        ["lock", "holder", "socket", "daemon.log", "program", "index.db-shm"].map(|name| format!("--exclude=./{name}")),
    );
    let packed = tar.arg("-czf").arg(fixture.join("home.tar.gz")).arg("-C").arg(pinfold.home()).arg(".").status();
    assert!(packed.expect("tar").success());
    let text = serde_json::to_string_pretty(&expected).expect("json");
    std::fs::write(fixture.join("expected.json"), text + "\n").expect("written");
}

/// Creates one of everything that a record, a segment or the index can contain.
fn live(pinfold: &Pinfold) {
    let request = |command: &str, owner: &str| StartRequest {
        command: Some(command.into()),
        cwd: Some("/".into()),
        owner: Some(owner.into()),
        ..StartRequest::default()
    };
    let run = |request: StartRequest| pinfold.wait_finished(&pinfold.start_request(&request).record.id).id;
    let (labels, key) = ([("team".to_owned(), "ui".to_owned())].into(), Some("key-1".to_owned()));
    let plain = request("echo one; echo two; exit 0", "chat-1");
    let plain = run(StartRequest { name: Some("plain".into()), labels, idempotency_key: key, ..plain });
    run(request("(sleep 0.5; echo later) & echo now; exit 3", "chat-1"));
    let stopped = pinfold.start_request(&request("echo up; exec sleep 300", "chat-2")).record.id;
    until("its output", || pinfold.show(&stopped).output.bytes > 0);
    pinfold.stop_request(&stopped, &StopRequest { by: Some("a person".into()), ..StopRequest::default() });

    let program = pinfold.home().join("program");
    std::fs::write(&program, "#!/no/such/interpreter\n").expect("a program");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("executable");
    let argv = Some(vec![program.display().to_string()]);
    pinfold
        .try_start(&StartRequest { argv, command: None, ..request("", "chat-2") })
        .expect_err("it cannot be executed");

    let lost = pinfold.start_request(&request("echo before; exec sleep 300", "chat-2")).record.id;
    until("its output", || pinfold.show(&lost).output.bytes > 0);
    Pidfd::open(pinfold.keeper_pid(&lost)).expect("a keeper").kill();
    pinfold.wait_finished(&lost);
    run(StartRequest { time_limit: Some("300ms".into()), ..request("exec sleep 300", "chat-3") });
    let streams = Some(Streams::Separate);
    run(StartRequest { streams, ..request("echo out; echo err >&2; sleep 0.3; echo out again", "chat-3") });
    run(StartRequest { output_limit: Some("64k".into()), ..request("seq -f %07.0f 1 12288", "chat-3") });

    let given = pinfold.start_request(&request("echo given; sleep 1; exit 8", "chat-3")).record.id;
    let handover = HandoverRequest { to: Some("chat-4".into()), purpose: "look after it".into() };
    pinfold.block(pinfold.client().handover(&given, &handover)).expect("a handover");
    pinfold.wait_finished(&given);
    let query = EventsQuery { consumer: Some("reader".into()), limit: Some(3), ..EventsQuery::default() };
    let page = pinfold.block(pinfold.client().events(&query)).expect("events");
    pinfold.block(pinfold.client().ack("reader", page.next)).expect("an ack");
    assert_eq!(pinfold.show(&plain).name.as_deref(), Some("plain"));
}
