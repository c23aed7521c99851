//! Deliveries: webhooks and command hooks; each event is delivered with one id, so that a receiver can drop repeats.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pinfold_api::types::{Event, EventKind, ListQuery, Notify, StartRequest};
use pinfold_store::index::Index;
use pinfold_testkit::{Pidfd, Pinfold, until, until_some};
use ring::hmac;

use crate::PINFOLD;
use crate::output::gate::Gate;
use crate::receiver::{Posted, Receiver};

fn hooked(command: &str, notify: Notify) -> StartRequest {
    StartRequest { command: Some(command.into()), notify: Some(notify), ..StartRequest::default() }
}

fn webhook(url: String) -> Notify {
    Notify { webhook: Some(url), ..Notify::default() }
}

/// Checks a signature the way the libraries of this scheme do, and returns the event.
fn verified(pinfold: &Pinfold, posted: &Posted) -> Event {
    let secret = std::fs::read_to_string(pinfold.home().join("webhook.key")).expect("a secret");
    let secret = STANDARD.decode(secret.trim().strip_prefix("whsec_").expect("its mark")).expect("base64");
    let header = |name: &str| posted.headers[name].clone();
    let signed = format!("{}.{}.{}", header("webhook-id"), header("webhook-timestamp"), posted.body);
    let signature = header("webhook-signature");
    let signature = STANDARD.decode(signature.strip_prefix("v1,").expect("a version")).expect("base64");
    let key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
    hmac::verify(&key, signed.as_bytes(), &signature).expect("the right signature");
    let event: Event = serde_json::from_str(&posted.body).expect("an event");
    assert_eq!(header("webhook-id"), format!("evt_{}", event.seq));
    assert_eq!(header("content-type"), "application/json");
    event
}

/// How many deliveries to a target had this result.
fn delivered(pinfold: &Pinfold, target: &str, result: &str) -> u64 {
    let metrics = pinfold.block(pinfold.client().metrics()).expect("metrics");
    let name = format!("pinfold_deliveries_total{{target=\"{target}\",result=\"{result}\"}} ");
    let count = metrics.lines().find_map(|line| line.strip_prefix(&name));
    count.expect("the counter").parse().expect("a number")
}

/// Whether the outbox is empty.
fn has_delivered_all(pinfold: &Pinfold) -> bool {
    let index = Index::reader(&pinfold.home().join("index.db")).expect("an index");
    index.deliveries(1).expect("deliveries").is_empty()
}

#[test]
fn webhook_signed_and_retried() {
    let pinfold = Pinfold::start(PINFOLD);
    let receiver = Receiver::answering(&["500 Internal Server Error"]);
    let started = pinfold.start_request(&hooked("exit 3", webhook(receiver.url("/s3cret-path?k=s3cret-query"))));
    let posted = receiver.until(2);
    let events: Vec<Event> = posted.iter().map(|posted| verified(&pinfold, posted)).collect();
    assert_eq!(events[0], events[1], "the same event under the same id");
    let known = pinfold.events(0).events.into_iter().find(|event| event.completion).expect("a completion");
    assert_eq!(events[0], known, "as the log has it");
    assert_eq!(posted[0].path, "/s3cret-path?k=s3cret-query");
    assert!(posted[0].body.contains(r#""type":"process.finished""#), "{}", posted[0].body);
    until("a delivery is noted", || delivered(&pinfold, "webhook", "delivered") == 1);
    assert_eq!(delivered(&pinfold, "webhook", "failed"), 1);
    // Secrets that may be part of a URL are shown nowhere.
    let record = serde_json::to_string(&pinfold.show(&started.record.id)).expect("a record");
    let log = std::fs::read_to_string(pinfold.home().join("daemon.log")).expect("a log");
    assert!(log.contains("delivery failed") && record.contains("http://localhost"));
    for text in [&record, &log, &posted[0].body] {
        assert!(!text.contains("s3cret"), "{text}");
    }
    use std::os::unix::fs::PermissionsExt;
    let key = std::fs::metadata(pinfold.home().join("webhook.key")).expect("a file");
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
    assert_eq!(receiver.posted().len(), 2);
}

#[test]
fn webhook_secret_of_the_configuration() {
    let text = format!("whsec_{}", STANDARD.encode([7; 32]));
    let setup = pinfold_testkit::Setup { config: format!("[webhook]\nsecret = \"{text}\"\n"), ..Default::default() };
    let pinfold = Pinfold::start_with(PINFOLD, setup);
    let receiver = Receiver::answering(&[]);
    pinfold.start_request(&hooked("true", webhook(receiver.url("/"))));
    let posted = receiver.until(1);
    assert!(!pinfold.home().join("webhook.key").exists());
    std::fs::write(pinfold.home().join("webhook.key"), &text).expect("written");
    assert!(verified(&pinfold, &posted[0]).completion);
    let shown = pinfold.cli(&["config", "show"]);
    assert!(!shown.stdout.contains(&text) && shown.code == Some(0), "{shown:?}");
}

#[test]
fn webhook_follows_no_redirect() {
    let pinfold = Pinfold::start(PINFOLD);
    let receiver = Receiver::answering(&["307 Temporary Redirect\r\nLocation: /elsewhere"]);
    pinfold.start_request(&hooked("true", webhook(receiver.url("/here"))));
    let paths: Vec<String> = receiver.until(2).into_iter().map(|posted| posted.path).collect();
    assert_eq!(paths, ["/here", "/here"]);
}

#[test]
fn webhook_survives_the_daemon() {
    let pinfold = Pinfold::start(PINFOLD);
    let receiver = Receiver::answering(&["503 Service Unavailable"]);
    let id = pinfold.start_request(&hooked("exit 4", webhook(receiver.url("/")))).record.id;
    let daemon = Pidfd::open(pinfold.daemon_pid()).expect("the daemon lives");
    receiver.until(1);
    daemon.kill();
    // This one ends while no daemon runs.
    pinfold.start_daemon();
    let gate = Gate::new(&pinfold, "end");
    let other = pinfold.start_request(&hooked(&gate.wait(), webhook(receiver.url("/")))).record.id;
    pinfold.kill_daemon();
    gate.open();
    until("all keepers end", || pinfold.keepers().is_empty());
    pinfold.start_daemon();
    until("all is delivered", || has_delivered_all(&pinfold));
    let events: Vec<Event> = receiver.posted().iter().map(|posted| verified(&pinfold, posted)).collect();
    for id in [&id, &other] {
        let mut seqs: Vec<u64> = events.iter().filter(|event| event.process == **id).map(|event| event.seq).collect();
        let tries = seqs.len();
        seqs.dedup();
        assert_eq!(seqs.len(), 1, "however often it was tried, it is one event");
        assert!(*id == other || tries > 1, "what was refused is tried again");
    }
}

/// Over TLS, only to servers whose certificate the machine trusts.
#[test]
fn webhook_over_tls() {
    let directory = std::env::temp_dir().join(format!("pinfold-tls-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let (certificate, key) = (directory.join("cert.pem"), directory.join("key.pem"));
    let made = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        return eprintln!("skipped: no `openssl` here to make a certificate with");
    }
    let receiver = Receiver::over_tls(&certificate, &key);
    let trusting = |file: &std::path::Path| {
        let env = vec![("SSL_CERT_FILE".to_owned(), file.display().to_string())];
        Pinfold::start_with(PINFOLD, pinfold_testkit::Setup { env, ..Default::default() })
    };
    let pinfold = trusting(&certificate);
    pinfold.start_request(&hooked("exit 3", webhook(receiver.url("/x"))));
    assert!(verified(&pinfold, &receiver.until(1)[0]).completion);
    until("all is delivered", || has_delivered_all(&pinfold));
    let other = directory.join("none.pem");
    std::fs::write(&other, "").expect("written");
    let wary = trusting(&other);
    wary.start_request(&hooked("exit 3", webhook(receiver.url("/x"))));
    until("a failed try", || delivered(&wary, "webhook", "failed") > 0);
    assert_eq!(receiver.posted().len(), 1);
    std::fs::remove_dir_all(&directory).expect("removed");
}

/// The events of a process arrive one by one, in order.
#[test]
fn webhook_keeps_the_order_of_a_process() {
    let pinfold = Pinfold::start(PINFOLD);
    let receiver = Receiver::answering(&["500 Internal Server Error"]);
    let notify = Notify {
        patterns: vec!["^line".into()],
        cooldown: Some("0".into()),
        webhook: Some(receiver.url("/")),
        ..Notify::default()
    };
    pinfold.start_request(&hooked("for i in 1 2 3 4 5; do echo line $i; done", notify));
    let events: Vec<Event> = receiver.until(7).iter().map(|posted| verified(&pinfold, posted)).collect();
    assert_eq!(events[0], events[1]);
    assert!(events[1..].is_sorted_by(|a, b| a.seq < b.seq), "{events:?}");
    let texts: Vec<_> = events[1..].iter().filter_map(|event| event.text.as_deref()).collect();
    assert_eq!(texts, ["line 1", "line 2", "line 3", "line 4", "line 5"]);
    assert_eq!(events[1..].iter().filter(|event| event.completion).count(), 1);
}

/// The lines that hooks wrote.
fn lines(path: &std::path::Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[test]
fn command_hook_runs_once() {
    let pinfold = Pinfold::start(PINFOLD);
    let path = pinfold.home().join("hooks");
    let script =
        format!("printf '%s %s %s\\n' $PINFOLD_EVENT_KIND $PINFOLD_PROCESS \"$PINFOLD_EVENT\" >> {}", path.display());
    let notify = Notify { command: Some(script), ..Notify::default() };
    let cwd = Some(pinfold.home().display().to_string());
    let request = StartRequest { cwd: cwd.clone(), owner: Some("ann".into()), ..hooked("exit 5", notify.clone()) };
    let id = pinfold.start_request(&request).record.id;
    until("a hook ran", || lines(&path).len() == 1);
    let gate = Gate::new(&pinfold, "end");
    let late = pinfold.start_request(&hooked(&gate.wait(), notify)).record.id;
    // Wherever the daemon was when it died, each hook runs once.
    for _ in 0..2 {
        pinfold.crash_and_restart();
    }
    gate.open();
    until("another hook ran", || lines(&path).len() >= 2);
    pinfold.crash_and_restart();
    until("both are noted", || has_delivered_all(&pinfold));
    let ran = lines(&path);
    assert_eq!(ran.len(), 2, "{ran:?}");
    for (line, id) in ran.iter().zip([&id, &late]) {
        let mut words = line.splitn(3, ' ');
        assert_eq!((words.next(), words.next()), (Some("finished"), Some(id.as_str())));
        let event: Event = serde_json::from_str(words.next().expect("an event")).expect("JSON");
        assert!(event.completion && event.process == **id && event.seq > 0);
    }
    let label = vec![format!("pinfold.hook={id}")];
    let hooks = pinfold.list(&ListQuery { label, ..ListQuery::default() }).processes;
    let [hook] = &hooks[..] else { panic!("one hook: {hooks:?}") };
    assert_eq!((hook.owner.as_str(), Some(&hook.cwd)), ("ann", cwd.as_ref()));
    // The end of the hook itself is not reported.
    let events = pinfold.events(0).events;
    assert!(events.iter().any(|event| event.process == hook.id && event.kind == EventKind::Finished));
    assert!(!events.iter().any(|event| event.process == hook.id && event.announce));
}

#[test]
fn command_hook_that_cannot_start_is_tried_again() {
    let pinfold = Pinfold::start(PINFOLD);
    let (directory, path) = (pinfold.home().join("work"), pinfold.home().join("hooks"));
    std::fs::create_dir(&directory).expect("a directory");
    let gate = Gate::new(&pinfold, "end");
    let notify = Notify { command: Some(format!("echo ran >> {}", path.display())), ..Notify::default() };
    let cwd = Some(directory.display().to_string());
    pinfold.start_request(&StartRequest { cwd, ..hooked(&gate.wait(), notify) });
    let reached = gate.reached();
    std::fs::remove_dir(&directory).expect("removed");
    reached.open();
    until_some("a failed try", || (delivered(&pinfold, "command", "failed") > 0).then_some(()));
    assert_eq!(lines(&path), [""; 0]);
    std::fs::create_dir(&directory).expect("a directory");
    until("the hook ran", || lines(&path) == ["ran"]);
}
