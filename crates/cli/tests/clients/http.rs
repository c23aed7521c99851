//! Streamable HTTP with a real client.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use pinfold_api::types::TokenRequest;
use pinfold_clients::agents::{Agent, ServerAccess};
use pinfold_clients::chat::Chat;
use pinfold_testkit::{Pinfold, Setup, until};
use serde_json::json;

use crate::PINFOLD;

/// A proxy between client and daemon that records which HTTP methods were used.
struct Listener {
    address: SocketAddr,
    received: Arc<Mutex<Vec<u8>>>,
}

impl Listener {
    fn before(daemon: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let received = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&received);
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let far = TcpStream::connect(&daemon).expect("the daemon listens");
                let (near_out, far_out) = (near.try_clone().expect("a clone"), far.try_clone().expect("a clone"));
                let noted = Arc::clone(&noted);
                thread::spawn(move || carry(near, far_out, |bytes| noted.lock().expect("a lock").extend(bytes)));
                thread::spawn(move || carry(far, near_out, |_| {}));
            }
        });
        Listener { address, received }
    }

    fn received(&self, method: &str) -> bool {
        let line = format!("{method} /mcp HTTP/1.1\r\n");
        self.received.lock().expect("a lock").windows(line.len()).any(|window| window == line.as_bytes())
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, note: impl Fn(&[u8])) {
    let mut buffer = [0; 8192];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        note(&buffer[..read]);
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[test]
fn http_transport_with_codex() {
    let Some(program) = Agent::Codex.installed() else { return };
    let config = "[tcp]\nlisten = \"127.0.0.1:0\"\n".to_owned();
    let pinfold = Pinfold::start_with(PINFOLD, Setup { config, ..Setup::default() });
    let token = pinfold.block(pinfold.client().add_token(&TokenRequest::default())).expect("a token").token;
    let between = Listener::before(pinfold.health().tcp.expect("it listens"));
    let mut chat =
        Chat::start_by(&program, &ServerAccess::Http { url: format!("http://{}/mcp", between.address), token });
    let up = chat.call("execute", &json!({ "command": "exec sleep 300", "background": true }));
    let id = up.get("id");
    let listed = chat.call("process_list", &json!({}));
    assert!(listed.text.contains(&id), "{listed}");
    let stopped = chat.call("process_signal", &json!({ "id": id }));
    assert!(stopped.is_over(), "{stopped}");
    let printed = chat.end();
    assert_eq!(Some(pinfold.show(&id).owner), Agent::Codex.owner(&printed));
    for method in ["POST", "GET", "DELETE"] {
        until(&format!("codex uses {method}"), || between.received(method));
    }
}
