//! D10: another web page, another local port and the dev server of a managed process try to act through the dashboard.
//! What a browser sends in each case was observed in Chromium; `cargo xtask dashboard --test` tries the same with the
//! browser itself.

use std::io::{Read, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::Command;

use pinfold_api::types::{DashboardRequest, ListQuery};
use pinfold_testkit::environments::{NOBODY, is_root};
use pinfold_testkit::{DEADLINE, Pinfold};

use super::{Answer, Browser, open, send};
use crate::PINFOLD;

const START: &str = r#"{"command":"true","name":"intruder"}"#;

/// Sends the headers of the page with some replaced or, with an empty value, left out.
fn attempt(browser: &Browser, method: &str, target: &str, changes: &[(&str, &str)]) -> Answer {
    let mut headers = browser.headers();
    for (name, value) in changes {
        headers.retain(|(kept, _)| kept != name);
        if !value.is_empty() {
            headers.push((name, value));
        }
    }
    send(browser.port, method, target, &headers, if method == "POST" { START } else { "" })
}

fn started(pinfold: &Pinfold) -> u64 {
    pinfold.block(pinfold.client().list(&ListQuery::default())).expect("a list").total
}

/// D10
#[test]
fn d10_no_other_page_port_or_name_starts_a_process_with_the_browsers_cookie() {
    let pinfold = Pinfold::start(PINFOLD);
    let browser = Browser::sign_in(&pinfold, false);
    let other_port = format!("http://pinfold.localhost:{}", browser.port - 1);
    let loopback = format!("127.0.0.1:{}", browser.port);
    let attacks: &[(&str, &[(&str, &str)])] = &[
        (
            "a page of another site",
            &[("Origin", "http://evil.example"), ("Sec-Fetch-Site", "cross-site"), ("Cookie", "")],
        ),
        (
            "a page of another site, cookie and all",
            &[("Origin", "http://evil.example"), ("Sec-Fetch-Site", "cross-site")],
        ),
        ("a dev server on another port of this name", &[("Origin", &other_port), ("Sec-Fetch-Site", "same-site")]),
        ("a sandboxed frame", &[("Origin", "null")]),
        ("a form without Origin", &[("Origin", "")]),
        ("a page that was typed in", &[("Sec-Fetch-Site", "none")]),
        ("an old browser", &[("Sec-Fetch-Site", "")]),
        ("DNS rebinding", &[("Host", "evil.example"), ("Origin", "http://evil.example")]),
        ("the address instead of the name", &[("Host", &loopback)]),
        ("the name on another port", &[("Host", "pinfold.localhost:80")]),
        // A dev server opened as pinfold.localhost:3000 gets the cookie, and can send any header.
        ("a stolen cookie without the page secret", &[("Pinfold-Page", "")]),
        ("a stolen cookie with a guessed page secret", &[("Pinfold-Page", "pinfold_00")]),
        ("the page secret without the cookie", &[("Cookie", "")]),
        ("a token instead", &[("Cookie", ""), ("Authorization", "Bearer pinfold_00")]),
    ];
    for (who, changes) in attacks {
        let answer = attempt(&browser, "POST", "/v1/processes", changes);
        assert!(matches!(answer.status, 401 | 403), "{who}: {} {}", answer.status, answer.body);
        let answer = attempt(&browser, "GET", "/v1/processes", changes);
        // A read needs no Origin.
        if *changes != [("Origin", "")] {
            assert!(matches!(answer.status, 401 | 403), "{who} reads: {} {}", answer.status, answer.body);
        }
    }
    assert_eq!(started(&pinfold), 0);
    assert_eq!(attempt(&browser, "POST", "/v1/processes", &[]).status, 201, "the page itself may");
}

#[test]
fn d10_no_other_page_attaches_to_a_terminal() {
    let pinfold = Pinfold::start(PINFOLD);
    let browser = Browser::sign_in(&pinfold, false);
    let record = pinfold.sh("exec sleep 300");
    let target = format!("/v1/processes/{}/attach", record.id);
    let attach = |change: Option<(&str, &str)>| {
        let mut headers = browser.upgrade();
        if let Some((name, value)) = change {
            headers.retain(|(kept, _)| *kept != name);
            headers.push((name, value.to_owned()));
        }
        let headers: Vec<_> = headers.iter().filter(|(_, v)| !v.is_empty()).map(|(n, v)| (*n, v.as_str())).collect();
        send(browser.port, "GET", &target, &headers, "")
    };
    for (name, value) in [
        ("Origin", "http://evil.example"),
        ("Origin", "http://pinfold.localhost:3000"),
        ("Origin", "null"),
        ("Origin", ""),
        ("Host", "127.0.0.1"),
        ("Cookie", ""),
        ("Sec-WebSocket-Protocol", ""),
        ("Sec-WebSocket-Protocol", "pinfold, page.guess"),
        ("Sec-Fetch-Site", "same-site"),
    ] {
        let status = attach(Some((name, value))).status;
        assert!(matches!(status, 401 | 403), "{name}: {value}: {status}");
    }
    let ours = attach(None);
    assert_eq!((ours.status, ours.header("sec-websocket-protocol")), (101, Some("pinfold")));
}

#[test]
fn a_key_is_useless_to_another_page() {
    let pinfold = Pinfold::start(PINFOLD);
    let opened = open(&pinfold, DashboardRequest::default());
    let key = opened.url.split_once("#k=").expect("a key").1;
    let host = format!("pinfold.localhost:{}", opened.port);
    let origin = format!("http://{host}");
    let body = format!("{{\"key\":\"{key}\"}}");
    let refused: &[&[(&str, &str)]] = &[
        &[("Host", &host), ("Sec-Fetch-Site", "same-origin")],
        &[("Host", &host), ("Origin", &origin)],
        &[("Host", &host), ("Origin", "http://evil.example"), ("Sec-Fetch-Site", "cross-site")],
        &[("Host", &host), ("Origin", "http://pinfold.localhost:1"), ("Sec-Fetch-Site", "same-site")],
        &[("Host", "localhost"), ("Origin", &origin), ("Sec-Fetch-Site", "same-origin")],
    ];
    for headers in refused {
        assert_eq!(send(opened.port, "POST", "/login", headers, &body).status, 403, "{headers:?}");
        let get = send(opened.port, "GET", &format!("/login?key={key}"), headers, "");
        assert!(matches!(get.status, 401 | 403 | 404), "{headers:?}: {}", get.status);
    }
    let ours = [("Host", &*host), ("Origin", &origin), ("Sec-Fetch-Site", "same-origin")];
    for bad in ["", "{}", "[]", "{\"key\":1}", &"x".repeat(100_000)] {
        assert_eq!(send(opened.port, "POST", "/login", &ours, bad).status, 400);
    }
    assert!(Browser::with_key(&opened).is_ok(), "attempts by others leave the key as it was");
}

#[test]
fn a_read_only_dashboard_changes_nothing_and_types_nothing() {
    let pinfold = Pinfold::start(PINFOLD);
    let browser = Browser::sign_in(&pinfold, true);
    let record = pinfold.sh("exec cat");
    for (method, target) in [
        ("POST", "/v1/processes".to_owned()),
        ("POST", format!("/v1/processes/{}/stop", record.id)),
        ("POST", format!("/v1/processes/{}/input", record.id)),
        ("POST", "/v1/tokens".to_owned()),
        ("DELETE", "/v1/tokens/x".to_owned()),
        ("POST", "/v1/shutdown".to_owned()),
    ] {
        let answer = browser.ask(method, &target, START);
        assert!(answer.status == 403 && answer.body.contains("is read-only"), "{target}: {}", answer.body);
    }
    let attach = |query: &str| {
        let headers = browser.upgrade();
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        send(browser.port, "GET", &format!("/v1/processes/{}/attach{query}", record.id), &headers, "").status
    };
    assert_eq!((attach("?write=true"), attach("?%77rite=true"), attach("")), (403, 403, 101));
    assert_eq!(browser.ask("GET", &format!("/v1/processes/{}", record.id), "").status, 200);
}

#[test]
fn a_dashboard_shows_no_more_than_its_opener_sees() {
    let pinfold = Pinfold::start(PINFOLD);
    let eve = pinfold.sh("exec sleep 300");
    let client = pinfold.client().acting_as("ann", None);
    let opened = pinfold.block(client.open_dashboard(&DashboardRequest::default())).expect("it opens");
    let browser = Browser::with_key(&opened).unwrap_or_else(|answer| panic!("{}", answer.body));
    assert_eq!(browser.ask("GET", &format!("/v1/processes/{}", eve.id), "").status, 404);
    assert_eq!(browser.ask("GET", "/v1/tokens", "").status, 403);
    let mut headers = browser.headers();
    headers.push(("Pinfold-Owner", "bob"));
    assert_eq!(send(browser.port, "GET", "/v1/processes", &headers, "").status, 404, "a view never widens");
}

#[test]
fn a_process_cannot_open_a_dashboard() {
    let pinfold = Pinfold::start(PINFOLD);
    let record = pinfold.sh(&format!("{} dashboard --print 2>&1; true", pinfold.binary().display()));
    pinfold.wait_finished(&record.id);
    let output = pinfold.text(&record.id);
    assert!(output.contains("open the dashboard from outside") && !output.contains("#k="), "{output}");
}

#[test]
fn nothing_but_the_api_and_the_page_is_behind_the_port() {
    let pinfold = Pinfold::start(PINFOLD);
    let browser = Browser::sign_in(&pinfold, false);
    for target in
        ["/mcp", "/metrics", "/openapi.json", "/api/v0/processes", "/assets/../../etc/passwd", "/v1", "//v1/processes"]
    {
        assert_eq!(browser.ask("GET", target, "").status, 404, "{target}");
    }
    assert_eq!(browser.ask("POST", "/v1/dashboard", "{}").status, 403, "a browser lets no other browser in");
    let page = send(browser.port, "GET", "/", &[("Host", &browser.host)], "");
    assert_eq!(page.status, 200);
    let policy = page.header("content-security-policy").expect("a policy");
    for word in ["default-src 'none'", "script-src 'self';", "frame-ancestors 'none'", "base-uri 'none'"] {
        assert!(policy.contains(word), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    let nonce = policy.split("'nonce-").nth(1).and_then(|rest| rest.split('\'').next()).expect("a nonce");
    assert!(page.body.contains(nonce) && !page.body.contains("{{nonce}}"));
    let other = send(browser.port, "GET", "/", &[("Host", &browser.host)], "");
    assert!(!other.body.contains(nonce), "a nonce is used once");
    for answer in [&page, &browser.ask("GET", "/v1/processes", ""), &browser.ask("GET", "/nothing", "")] {
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
            ("cache-control", "no-store"),
            ("cross-origin-resource-policy", "same-origin"),
            ("cross-origin-opener-policy", "same-origin"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{}", answer.head);
        }
    }
}

/// Browsers try `::1` first for `pinfold.localhost`: a program that listened there would get the requests meant for us.
#[test]
fn no_other_program_can_listen_on_the_port_of_the_other_loopback_address() {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        eprintln!("passed over: this machine has no IPv6");
        return;
    }
    let pinfold = Pinfold::start(PINFOLD);
    let opened = open(&pinfold, DashboardRequest::default());
    assert!(TcpListener::bind((Ipv6Addr::LOCALHOST, opened.port)).is_err());
    pinfold.block(pinfold.client().close_dashboard()).expect("closed");
    let squatter = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).expect("a port");
    let port = squatter.local_addr().expect("an address").port();
    let request = DashboardRequest { port: Some(port), read_only: false };
    let refused = pinfold.block(pinfold.client().open_dashboard(&request)).expect_err("the port is taken on ::1");
    assert!(refused.to_string().contains("is taken"), "{refused}");
}

#[test]
fn signing_out_closes_what_the_browser_has_open() {
    let pinfold = Pinfold::start(PINFOLD);
    let browser = Browser::sign_in(&pinfold, false);
    let record = pinfold.sh("exec sleep 300");
    let mut stream = TcpStream::connect(("127.0.0.1", browser.port)).expect("a connection");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    let headers: String = browser.upgrade().iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!("GET /v1/processes/{}/attach HTTP/1.1\r\n{headers}\r\n", record.id);
    stream.write_all(request.as_bytes()).expect("sent");
    let mut head = [0; 12];
    stream.read_exact(&mut head).expect("an answer");
    assert_eq!(&head, b"HTTP/1.1 101");
    assert_eq!(browser.ask("POST", "/logout", "").status, 200);
    let mut rest = Vec::new();
    // The stream ends: the terminal did not outlive the session.
    let ended = stream.read_to_end(&mut rest);
    assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() != std::io::ErrorKind::WouldBlock));
}

#[test]
fn a_new_daemon_accepts_no_session_of_the_old_one() {
    let pinfold = Pinfold::start(PINFOLD);
    let browser = Browser::sign_in(&pinfold, false);
    pinfold.crash_and_restart();
    let opened = open(&pinfold, DashboardRequest { port: Some(browser.port), read_only: false });
    assert_eq!(browser.ask("GET", "/v1/processes", "").status, 401);
    assert!(Browser::with_key(&opened).is_ok());
}

/// The address with the key is an argument of the program that opens the browser, which every user can read.
#[test]
fn another_user_of_the_machine_gets_no_answer_even_with_a_key() {
    if !is_root() {
        eprintln!("passed over: only root can try this as another user");
        return;
    }
    let pinfold = Pinfold::start(PINFOLD);
    let opened = open(&pinfold, DashboardRequest::default());
    let port = opened.port;
    let key = opened.url.split_once("#k=").expect("a key").1;
    let body = format!("{{\"key\":\"{key}\"}}");
    let host = format!("pinfold.localhost:{port}");
    let request = format!(
        "POST /login HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nSec-Fetch-Site: same-origin\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && printf '%s' \"$1\" >&3 && cat <&3");
    let ask_as = |user: u32| {
        let mut command = Command::new("bash");
        command.args(["-c", &script, "bash", &request]).current_dir("/").uid(user).gid(user);
        String::from_utf8_lossy(&command.output().expect("bash runs").stdout).into_owned()
    };
    assert_eq!(ask_as(NOBODY), "");
    assert!(ask_as(0).contains("__Host-pinfold"), "the same request as our own user");
}
