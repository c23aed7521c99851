//! The dashboard without a browser: opening and closing its port, signing in, and what it refuses.

mod attacks;

use std::io::{Read, Write};
use std::net::TcpStream;

use pinfold_api::types::{DashboardAnswer, DashboardRequest};
use pinfold_testkit::{DEADLINE, Pinfold, until};
use serde_json::Value;

use crate::PINFOLD;

/// A raw response.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// Sends a request with these headers and no others.
fn send(port: u16, method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    let mut request = format!("{method} {target} HTTP/1.1\r\nContent-Length: {}\r\n", body.len());
    if !headers.iter().any(|(name, _)| *name == "Upgrade") {
        request.push_str("Connection: close\r\n");
    }
    headers.iter().for_each(|(name, value)| request.push_str(&format!("{name}: {value}\r\n")));
    stream.write_all(format!("{request}\r\n{body}").as_bytes()).expect("sent");
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut piece) {
        bytes.extend_from_slice(&piece[..read]);
        if is_whole(&String::from_utf8_lossy(&bytes)) {
            break;
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").expect("an answer");
    assert!(!head.to_ascii_lowercase().contains("access-control-allow"), "{head}");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

/// Whether the response is complete: an accepted upgrade, or a body of the announced length.
fn is_whole(answer: &str) -> bool {
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    head.starts_with("HTTP/1.1 101") || length.is_some_and(|length: usize| body.len() >= length)
}

/// A browser that signed in, and the headers it sends.
struct Browser {
    port: u16,
    host: String,
    origin: String,
    cookie: String,
    secret: String,
}

impl Browser {
    fn sign_in(pinfold: &Pinfold, read_only: bool) -> Self {
        let opened = open(pinfold, DashboardRequest { read_only, port: None });
        Self::with_key(&opened).expect("signed in")
    }

    fn with_key(opened: &DashboardAnswer) -> Result<Self, Answer> {
        let host = format!("pinfold.localhost:{}", opened.port);
        let origin = format!("http://{host}");
        let key = opened.url.split_once("#k=").expect("a key").1;
        let headers = [("Host", &*host), ("Origin", &origin), ("Sec-Fetch-Site", "same-origin")];
        let answer = send(opened.port, "POST", "/login", &headers, &format!("{{\"key\":\"{key}\"}}"));
        if answer.status != 200 {
            return Err(answer);
        }
        let cookie = answer.header("set-cookie").expect("a cookie");
        for word in ["__Host-pinfold=", "; Secure", "; HttpOnly", "; SameSite=Strict", "; Path=/"] {
            assert!(cookie.contains(word), "{cookie}");
        }
        let cookie = cookie.split(';').next().expect("a value").to_owned();
        let said: Value = serde_json::from_str(&answer.body).expect("json");
        let secret = said["secret"].as_str().expect("a secret").to_owned();
        Ok(Self { port: opened.port, host, origin, cookie, secret })
    }

    /// The headers of the page's own requests.
    fn headers(&self) -> Vec<(&str, &str)> {
        vec![
            ("Host", &self.host),
            ("Origin", &self.origin),
            ("Sec-Fetch-Site", "same-origin"),
            ("Cookie", &self.cookie),
            ("Pinfold-Page", &self.secret),
        ]
    }

    /// The headers of the page's WebSockets.
    fn upgrade(&self) -> Vec<(&str, String)> {
        vec![
            ("Host", self.host.clone()),
            ("Origin", self.origin.clone()),
            ("Cookie", self.cookie.clone()),
            ("Connection", "Upgrade".into()),
            ("Upgrade", "websocket".into()),
            ("Sec-WebSocket-Version", "13".into()),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==".into()),
            ("Sec-WebSocket-Protocol", format!("pinfold, page.{}", self.secret)),
        ]
    }

    fn ask(&self, method: &str, target: &str, body: &str) -> Answer {
        send(self.port, method, target, &self.headers(), body)
    }
}

fn open(pinfold: &Pinfold, request: DashboardRequest) -> DashboardAnswer {
    pinfold.block(pinfold.client().open_dashboard(&request)).expect("it opens")
}

fn is_open(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

#[test]
fn the_port_is_open_only_between_opening_and_closing_the_dashboard() {
    let pinfold = Pinfold::start(PINFOLD);
    let listening = || {
        let pid = pinfold.health().pid;
        let sockets = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors");
        let inodes: Vec<String> = sockets
            .filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok()?.to_str().map(str::to_owned))
            .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
            .collect();
        let table = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
        let rows = table("tcp") + &table("tcp6");
        let fields = rows.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        fields.filter(|row| row.len() > 9 && row[3] == "0A" && inodes.iter().any(|inode| inode == row[9])).count()
    };
    assert_eq!(listening(), 0);
    let opened = open(&pinfold, DashboardRequest::default());
    assert!(listening() >= 1 && is_open(opened.port));
    let again = open(&pinfold, DashboardRequest::default());
    assert_eq!(again.port, opened.port, "the open port is used again");
    let browser = Browser::with_key(&again).unwrap_or_else(|answer| panic!("{}", answer.body));
    assert_eq!(browser.ask("GET", "/healthz", "").status, 200);
    let closed = pinfold.block(pinfold.client().close_dashboard()).expect("closed");
    assert_eq!(closed.signed_out, 1);
    assert_eq!(listening(), 0);
}

#[test]
fn the_port_closes_when_the_last_browser_signs_out() {
    let pinfold = Pinfold::start(PINFOLD);
    let browser = Browser::sign_in(&pinfold, false);
    assert_eq!(browser.ask("POST", "/logout", "").status, 200);
    until("the port is closed", || !is_open(browser.port));
    let again = Browser::sign_in(&pinfold, false);
    assert_eq!(again.ask("GET", "/v1/processes", "").status, 200);
    assert_ne!(browser.secret, again.secret);
}

#[test]
fn the_command_prints_an_address_that_signs_in_one_browser_once() {
    let pinfold = Pinfold::start(PINFOLD);
    let output = pinfold.command(&["dashboard", "--print"]).output().expect("it runs");
    let url = String::from_utf8(output.stdout).expect("text").trim().to_owned();
    let port = url.strip_prefix("http://pinfold.localhost:").and_then(|rest| rest.split_once("/#k=")).expect(&url).0;
    let opened = DashboardAnswer { port: port.parse().expect("a port"), url, ..DashboardAnswer::default() };
    assert!(Browser::with_key(&opened).is_ok());
    let Err(answer) = Browser::with_key(&opened) else { panic!("a key was used twice") };
    assert_eq!(answer.status, 401);
    assert!(answer.body.contains("pinfold dashboard"), "{}", answer.body);
}

#[test]
fn without_a_display_the_command_prints_the_address_and_says_why() {
    let pinfold = Pinfold::start(PINFOLD);
    let mut command = pinfold.command(&["dashboard"]);
    command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY").env_remove("WSL_DISTRO_NAME");
    let output = command.env_remove("BROWSER").output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("no browser was found here"), "{text}");
    assert!(text.contains("http://pinfold.localhost:"), "{text}");
}

#[test]
fn the_command_opens_the_browser_that_is_named() {
    let pinfold = Pinfold::start(PINFOLD);
    let seen = pinfold.home().join("opened");
    let browser = pinfold.home().join("browser");
    let script = format!("#!/bin/sh\nprintf '%s' \"$1\" > {0}.part && mv {0}.part {0}\n", seen.display());
    std::fs::write(&browser, script).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&browser, mode).expect("executable");
    let output = pinfold.command(&["dashboard"]).env("BROWSER", &browser).output().expect("it runs");
    assert!(output.status.success());
    until("the browser was started", || seen.exists());
    assert!(std::fs::read_to_string(&seen).expect("an address").starts_with("http://pinfold.localhost:"));
}

#[test]
fn a_taken_port_and_a_second_port_are_refused_with_advice() {
    let pinfold = Pinfold::start(PINFOLD);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let run = |words: &[&str]| {
        let output = pinfold.command(&["dashboard"]).args(words).output().expect("it runs");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (ok, text) = run(&["--print", "--port", &port]);
    assert!(!ok && text.contains(&format!("port {port} is taken")), "{text}");
    assert!(run(&["--print"]).0);
    let (ok, text) = run(&["--print", "--port", &port]);
    assert!(!ok && text.contains("pinfold dashboard --close"), "{text}");
}

#[test]
fn the_doctor_answers_over_the_api() {
    let pinfold = Pinfold::start(PINFOLD);
    let findings = pinfold.block(pinfold.client().doctor()).expect("findings").findings;
    assert!(findings.iter().any(|finding| finding.topic == "cgroup"), "{findings:?}");
    assert!(findings.iter().any(|finding| finding.topic == "daemon"), "{findings:?}");
}
