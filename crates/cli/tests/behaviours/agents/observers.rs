//! Observers of an agent: its own messages, unchanged, to any number of WebSockets.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use super::{Host, assert_said};

/// A WebSocket client that only reads.
struct Observer(BufReader<UnixStream>);

impl Observer {
    /// The status line, and the observer.
    fn connect(host: &Host, path: &str, header: &str) -> (String, Self) {
        let mut stream = UnixStream::connect(host.pinfold.home().join("socket")).expect("the daemon listens");
        stream.set_read_timeout(Some(pinfold_testkit::DEADLINE)).expect("a timeout");
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{header}\r\n"
        );
        stream.write_all(request.as_bytes()).expect("asked");
        let mut reader = BufReader::new(stream);
        let mut status = String::new();
        reader.read_line(&mut status).expect("an answer");
        let mut line = String::new();
        while reader.read_line(&mut line).expect("headers") > 2 {
            line.clear();
        }
        (status, Self(reader))
    }

    /// The next message; `None` when the connection is closed.
    fn next(&mut self) -> Option<String> {
        let mut head = [0; 2];
        self.0.read_exact(&mut head).ok()?;
        let length = match head[1] {
            126 => {
                let mut long = [0; 2];
                self.0.read_exact(&mut long).ok()?;
                usize::from(u16::from_be_bytes(long))
            }
            short => usize::from(short),
        };
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).ok()?;
        (head[0] & 15 == 1).then(|| String::from_utf8(bytes).expect("text"))
    }

    fn until(&mut self, text: &str) -> String {
        std::iter::from_fn(|| self.next()).find(|message| message.contains(text)).expect("it comes")
    }
}

#[test]
fn observers_and_writers_every_observer_gets_an_agents_own_messages() {
    let host = Host::start();
    let agent = host.agent();
    let path = format!("/v1/agents/{}/attach", agent.id);
    let mut observers: Vec<_> = (0..3).map(|_| Observer::connect(&host, &path, "").1).collect();
    assert_said(&host.turn(&agent.id, "say aloud"), "aloud");
    for observer in &mut observers {
        assert!(observer.next().expect("a notice").contains(r#""pinfold":"process""#));
        assert_eq!(observer.next().expect("a message"), r#"{"id":1,"result":{"userAgent":"pinfold/1.2.3 (fake)"}}"#);
        let message = observer.until("aloud");
        assert!(message.starts_with(r#"{"method":"item/completed""#), "{message}");
        observer.until("turn/completed");
    }
    // A late observer gets all earlier messages, and then the new ones.
    let mut late = Observer::connect(&host, &path, "").1;
    late.until("aloud");
    host.stop(&agent.id);
    for observer in observers.iter_mut().chain([&mut late]) {
        observer.until(r#""pinfold":"exited""#);
        observer.until(r#""pinfold":"over""#);
        assert_eq!(observer.next(), None);
    }
}

#[test]
fn other_owners_and_web_pages_cannot_observe_an_agent() {
    let host = Host::start();
    let agent = host.agent();
    let path = format!("/v1/agents/{}/attach", agent.id);
    let (status, _) = Observer::connect(&host, &path, "Pinfold-Owner: stranger\r\n");
    assert!(status.contains("404"), "{status}");
    let (status, _) = Observer::connect(&host, &path, "Origin: http://example.com\r\n");
    assert!(status.contains("403"), "{status}");
}
