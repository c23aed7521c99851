//! The client against a fake daemon that follows one script per connection.

use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use super::*;

const HEALTH: &str = r#"{"status":"ok","version":"0.1.0","pid":7,"home":"/h","socket":"/h/socket",
    "started_at":"2026-01-01T00:00:00Z","live":0,"containment":"subreaper","no_cgroup":null,"troubles":[]}"#;

struct Fake {
    directory: PathBuf,
    listener: UnixListener,
}

impl Fake {
    fn new(name: &str) -> Fake {
        let directory = std::env::temp_dir().join(format!("pinfold-client-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let socket = directory.join("socket");
        let _ = std::fs::remove_file(&socket);
        Fake { directory, listener: UnixListener::bind(socket).unwrap() }
    }

    fn client(&self) -> Client {
        Client::new(self.directory.join("socket"))
    }

    async fn accept(&self) -> UnixStream {
        self.listener.accept().await.unwrap().0
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Reads one request: its head, and its body by content-length.
async fn request(stream: &mut UnixStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return Some(text);
            }
        }
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
        }
    }
}

async fn respond(stream: &mut UnixStream, status: &str, headers: &str, body: &str) {
    let text = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len());
    stream.write_all(text.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn sequential_requests_share_one_connection() {
    let fake = Fake::new("kept");
    let client = fake.client();
    let serve = async {
        let mut stream = fake.accept().await;
        for _ in 0..3 {
            assert!(request(&mut stream).await.unwrap().starts_with("GET /healthz HTTP/1.1\r\nhost: localhost"));
            respond(&mut stream, "200 OK", "", HEALTH).await;
        }
    };
    let ask = async {
        for _ in 0..3 {
            assert_eq!(client.health().await.unwrap().pid, 7);
        }
    };
    tokio::join!(serve, ask);
}

/// If the daemon closed the connection just as a start is sent, the start could not be retried.
#[tokio::test]
async fn a_connection_that_was_idle_for_too_long_is_not_used_again() {
    let fake = Fake::new("stale");
    let transport = Transport::with_idle_timeout(std::time::Duration::ZERO, fake.directory.join("socket"));
    let client = Client { transport: Arc::new(transport), owner_headers: Arc::new([]) };
    let serve = async {
        let mut first = fake.accept().await;
        request(&mut first).await.unwrap();
        respond(&mut first, "200 OK", "", HEALTH).await;
        assert_eq!(request(&mut first).await, None, "it is used again");
        let mut second = fake.accept().await;
        request(&mut second).await.unwrap();
        respond(&mut second, "200 OK", "", HEALTH).await;
    };
    let ask = async {
        client.health().await.unwrap();
        client.health().await.unwrap();
    };
    tokio::join!(serve, ask);
}

#[tokio::test]
async fn requests_at_the_same_time_use_two_connections() {
    let fake = Fake::new("two");
    let client = fake.client();
    let serve = async {
        let (mut first, mut second) = (fake.accept().await, fake.accept().await);
        request(&mut first).await.unwrap();
        request(&mut second).await.unwrap();
        respond(&mut second, "200 OK", "", HEALTH).await;
        respond(&mut first, "200 OK", "", HEALTH).await;
    };
    let (_, one, two) = tokio::join!(serve, client.health(), client.health());
    assert!(one.is_ok() && two.is_ok());
}

#[tokio::test]
async fn a_read_is_retried_when_the_pooled_connection_closes() {
    let fake = Fake::new("repeat");
    let client = fake.client();
    let serve = async {
        let mut stream = fake.accept().await;
        request(&mut stream).await.unwrap();
        respond(&mut stream, "200 OK", "", HEALTH).await;
        request(&mut stream).await.unwrap();
        drop(stream);
        let mut stream = fake.accept().await;
        request(&mut stream).await.unwrap();
        respond(&mut stream, "200 OK", "", HEALTH).await;
    };
    let ask = async {
        client.health().await.unwrap();
        client.health().await.unwrap();
    };
    tokio::join!(serve, ask);
}

#[tokio::test]
async fn a1_no_request_is_done_twice() {
    let fake = Fake::new("once");
    let client = fake.client();
    let serve = async {
        let mut stream = fake.accept().await;
        request(&mut stream).await.unwrap();
        respond(&mut stream, "200 OK", "", HEALTH).await;
        assert!(request(&mut stream).await.unwrap().starts_with("POST /v1/processes HTTP/1.1"));
        drop(stream);
        // The keyed start that follows is the next and only request.
        let mut stream = fake.accept().await;
        assert!(request(&mut stream).await.unwrap().contains(r#""idempotency_key":"k""#));
        respond(&mut stream, "409 Conflict", "", r#"{"code":"key_reused","message":"used"}"#).await;
    };
    let ask = async {
        client.health().await.unwrap();
        let request = StartRequest { command: Some("true".into()), ..Default::default() };
        assert!(matches!(client.start(&request).await, Err(ClientError::Unreachable { .. })));
        let keyed = StartRequest { idempotency_key: Some("k".into()), ..request };
        match client.start(&keyed).await {
            Err(ClientError::Api { status: 409, error }) => assert_eq!(error.code, ErrorCode::KeyReused),
            other => panic!("{other:?}"),
        }
    };
    tokio::join!(serve, ask);
}

#[tokio::test]
async fn raw_output_has_its_metadata_in_headers() {
    let fake = Fake::new("raw");
    let client = fake.client();
    let serve = async {
        let mut stream = fake.accept().await;
        let asked = request(&mut stream).await.unwrap();
        assert!(asked.starts_with("GET /v1/processes/a%2Fb/output?cursor=3&format=raw HTTP/1.1"), "{asked}");
        let headers = "pinfold-cursor: 5\r\npinfold-next-cursor: 8\r\npinfold-end: 9\r\npinfold-gap-from: 3\r\n\
                       pinfold-gap-to: 5\r\npinfold-exited: true\r\npinfold-closed: false\r\n\
                       pinfold-status: lingering\r\n";
        respond(&mut stream, "200 OK", headers, "abc").await;
    };
    let ask = async {
        let query = OutputQuery { cursor: Some(3), ..Default::default() };
        let raw = client.output_raw("a/b", &query).await.unwrap();
        assert_eq!((&raw.bytes[..], raw.cursor, raw.next_cursor, raw.end), (&b"abc"[..], 5, 8, 9));
        assert_eq!((raw.gap, raw.exited, raw.closed), (Some(Range { from: 3, to: 5 }), true, false));
        assert_eq!(raw.status, Status::Lingering);
    };
    tokio::join!(serve, ask);
}

#[tokio::test]
async fn events_stream_over_chunks_and_end_with_the_connection() {
    let fake = Fake::new("events");
    let client = fake.client();
    let event = r#"{"seq":4,"kind":"finished","process":"k3v9x2","owner":"default","at":"2026-01-01T00:00:00Z",
        "command":"true","started_at":null,"outcome":{"kind":"exited","code":0},"cause":"on_its_own"}"#
        .replace('\n', " ");
    let serve = async {
        let mut stream = fake.accept().await;
        let asked = request(&mut stream).await.unwrap();
        assert!(asked.contains("accept: text/event-stream") && asked.contains("?after=3"), "{asked}");
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n: hi\n\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let (front, back) = event.split_at(20);
        stream.write_all(format!("id: 4\nevent: finished\ndata: {front}").as_bytes()).await.unwrap();
        tokio::task::yield_now().await;
        stream.write_all(format!("{back}\n\n").as_bytes()).await.unwrap();
    };
    let ask = async {
        let query = EventsQuery { after: Some("3".into()), ..Default::default() };
        let mut events = client.events_stream(&query).await.unwrap();
        assert_eq!(events.next().await.unwrap().unwrap().seq, 4);
        assert!(events.next().await.is_none());
    };
    tokio::join!(serve, ask);
}

#[tokio::test]
async fn a_socket_path_longer_than_an_address_works() {
    let fake = Fake::new("long");
    let deep = fake.directory.join("d".repeat(120));
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::rename(fake.directory.join("socket"), deep.join("socket")).unwrap();
    let client = Client::new(deep.join("socket"));
    assert!(client.socket().as_os_str().len() > 107);
    let serve = async {
        let mut stream = fake.accept().await;
        request(&mut stream).await.unwrap();
        respond(&mut stream, "200 OK", "", HEALTH).await;
    };
    let (_, health) = tokio::join!(serve, client.health());
    assert_eq!(health.unwrap().version, "0.1.0");
}

#[tokio::test]
async fn the_error_without_a_daemon_names_the_socket() {
    let error = Client::new(Path::new("/nowhere/socket")).health().await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }) && error.to_string().contains("/nowhere/socket"));
}

#[tokio::test]
async fn a_response_that_is_not_from_the_daemon_is_reported_with_its_status() {
    let fake = Fake::new("foreign");
    let client = fake.client();
    let serve = async {
        let mut stream = fake.accept().await;
        request(&mut stream).await.unwrap();
        respond(&mut stream, "502 Bad Gateway", "", "<html>").await;
    };
    let (_, answer) = tokio::join!(serve, client.show("x"));
    assert!(answer.unwrap_err().to_string().contains("502 Bad Gateway: <html>"));
}
