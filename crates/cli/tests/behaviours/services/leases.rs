//! Leased ports.

use std::collections::BTreeSet;
use std::net::TcpListener;

use pinfold_api::error::ErrorCode;
use pinfold_api::types::{Port, StartRequest};
use pinfold_testkit::{Pinfold, place_text, until_some};

use super::leased;
use crate::PINFOLD;
use crate::requests::request;

fn fixed(port: u16) -> StartRequest {
    let ports = [("PORT".to_owned(), Port::Number(port.into()))].into();
    StartRequest { ports, ..request("exec sleep 300") }
}

/// Starts a process with a port that this test held. A child that another test forked may hold it until it calls exec.
fn start_once_free(pinfold: &Pinfold, port: u16) -> u16 {
    let started = until_some("the port is free", || pinfold.try_start(&fixed(port)).ok());
    started.record.ports["PORT"]
}

/// D6
#[test]
fn port_lease() {
    let pinfold = Pinfold::start(PINFOLD);
    let two = StartRequest {
        ports: ["PORT", "API_PORT"].map(|name| (name.to_owned(), "lease".into())).into(),
        ..request("echo $PORT $API_PORT; exec sleep 300")
    };
    let all: Vec<_> = (0..10).map(|_| pinfold.start_request(&two).record).collect();
    let ports: BTreeSet<u16> = all.iter().flat_map(|record| record.ports.values().copied()).collect();
    assert_eq!(ports.len(), 20, "each is leased once");
    let one = &all[0];
    let expected = format!("{} {}\n", one.ports["PORT"], one.ports["API_PORT"]);
    pinfold_testkit::until("the ports reach the child", || pinfold.text(&one.id) == expected);
    // Not leased twice, also not by a daemon that knows it only from the record; free once the tree is empty.
    let port = one.ports["PORT"];
    for _ in 0..2 {
        let refusal = pinfold.try_start(&fixed(port)).expect_err("leased already");
        assert_eq!(refusal.code, ErrorCode::LimitReached);
        assert!(refusal.message.contains(&one.id), "{refusal}");
        pinfold.crash_and_restart();
    }
    pinfold.stop(&one.id);
    assert_eq!(pinfold.start_request(&fixed(port)).record.ports["PORT"], port);
}

/// A failed start releases its port.
#[test]
fn port_lease_is_released_by_a_failed_start() {
    let pinfold = Pinfold::start(PINFOLD);
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("its number").port();
    drop(free);
    let argv = Some(vec!["/etc/passwd/x".to_owned()]);
    pinfold.try_start(&StartRequest { argv, command: None, ..fixed(port) }).expect_err("no program");
    let script = pinfold.home().join("no-format");
    place_text(&[0x7f, b'E', b'L', b'F', 0], &script);
    let argv = Some(vec![script.to_str().expect("text").to_owned()]);
    pinfold.try_start(&StartRequest { argv, command: None, ..fixed(port) }).expect_err("no format");
    assert_eq!(start_once_free(&pinfold, port), port);
}

/// A port that another program holds is found before the start, and the error names the program.
#[test]
fn port_lease_of_a_port_in_use_is_refused() {
    let pinfold = Pinfold::start(PINFOLD);
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = other.local_addr().expect("its number").port();
    let refusal = pinfold.try_start(&fixed(port)).expect_err("in use");
    assert!(refusal.message.contains(&format!("pid {}", std::process::id())), "{refusal}");
    drop(other);
    start_once_free(&pinfold, port);
}

#[test]
fn port_lease_that_makes_no_sense_is_refused() {
    let pinfold = Pinfold::start(PINFOLD);
    let refuse = |name: &str, port: Port| {
        let ports = [(name.to_owned(), port)].into();
        pinfold.try_start(&StartRequest { ports, ..request("true") }).expect_err("refused").message
    };
    assert!(refuse("A B", "lease".into()).contains("not a usable variable name"));
    assert!(refuse("PORT", "soon".into()).contains("`lease`"));
    assert!(refuse("PORT", Port::Number(80)).contains("1024"));
    assert!(refuse("PORT", Port::Number(70_000)).contains("65535"));
    assert!(pinfold.start_request(&leased("exec sleep 300")).record.ports.contains_key("PORT"));
}
