//! Waits for a listening port.

use std::net::TcpListener;

use pinfold_api::types::{WaitQuery, WaitReason};
use pinfold_testkit::{Pinfold, until_some};

use super::{meanwhile, now, until, waiting};
use crate::PINFOLD;
use crate::output::gate::Gate;
use crate::records::intent;

/// Listens on a port that the kernel chooses, and prints it.
const SERVER: &str = "exec perl -MIO::Socket::INET -e '$| = 1; \
    my $socket = IO::Socket::INET->new(Listen => 1, LocalAddr => \"127.0.0.1\") or die; \
    print $socket->sockport, \"\\n\"; sleep 300'";

/// The port that a server has printed.
fn printed(pinfold: &Pinfold, id: &str) -> u16 {
    until_some("a port in the output", || pinfold.text(id).trim().parse().ok())
}

#[test]
fn wait_port() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = Gate::new(&pinfold, "listen");
    let id = pinfold.sh(&format!("{}; {SERVER}", gate.wait())).id;
    assert_eq!(pinfold.wait(&id, &now(until("port"))).reason, WaitReason::Timeout);
    let wait = waiting(&pinfold, &id, until("port"));
    let [answer] = &meanwhile(&pinfold, [wait], async || gate.open())[..] else { panic!("one answer") };
    let port = printed(&pinfold, &id);
    assert_eq!((answer.reason, answer.port), (WaitReason::Port, Some(port)));
    let of_port = |port| now(WaitQuery { port: Some(port), ..until("port") });
    let answer = pinfold.wait(&id, &of_port(port));
    assert_eq!((answer.reason, answer.port), (WaitReason::Port, Some(port)));
    assert_eq!(pinfold.show(&id).tree[0].ports, [port]);
    // A port of another process does not count.
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let other = other.local_addr().expect("its number").port();
    assert_eq!(pinfold.wait(&id, &of_port(other)).reason, WaitReason::Timeout);
}

#[test]
fn wait_port_ends_with_the_process() {
    let pinfold = Pinfold::start(PINFOLD);
    let gate = Gate::new(&pinfold, "end");
    let id = pinfold.sh(&format!("{}; exit 3", gate.wait())).id;
    let wait = waiting(&pinfold, &id, until("port"));
    let [answer] = &meanwhile(&pinfold, [wait], async || gate.open())[..] else { panic!("one answer") };
    assert_eq!((answer.reason, answer.port), (WaitReason::EndedBefore, None));
    // The keeper then runs a server. The port belongs to that process, not to the one that ended.
    let keeper = |id: &str| intent(&pinfold, id).keeper;
    let (id, server) = until_some("a server under the keeper of an ended process", || {
        let ended = pinfold.wait_finished(&pinfold.sh("exit 3").id).id;
        let server = pinfold.sh(SERVER).id;
        (keeper(&server) == keeper(&ended)).then_some((ended, server))
    });
    assert_eq!(pinfold.wait(&server, &until("port")).reason, WaitReason::Port);
    let answer = pinfold.wait(&id, &until("port"));
    assert_eq!((answer.reason, answer.port), (WaitReason::EndedBefore, None));
}
