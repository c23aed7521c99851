//! Raw requests on the daemon's socket, for what a well-behaved client would not send.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use pinfold_api::error::ApiError;
use pinfold_testkit::{DEADLINE, Pinfold};

/// A raw response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.filter(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    }

    /// The error in it.
    pub(crate) fn error(&self) -> ApiError {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("no error of ours ({error}): {self:?}"))
    }
}

/// A connection to the daemon.
pub(crate) fn connect(pinfold: &Pinfold) -> UnixStream {
    let stream = UnixStream::connect(pinfold.home().join("socket")).expect("a connection");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    stream.set_write_timeout(Some(DEADLINE)).expect("a timeout");
    stream
}

/// Sends these bytes and nothing more, and reads until the daemon closes the connection.
pub(crate) fn send_raw(pinfold: &Pinfold, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(pinfold);
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    read_all(stream)
}

fn read_all(mut stream: UnixStream) -> Vec<u8> {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// Sends a request with any body.
pub(crate) fn send(pinfold: &Pinfold, method: &str, target: &str, body: &[u8]) -> Answer {
    let length = body.len();
    let head =
        format!("{method} {target} HTTP/1.1\r\nHost: p\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    let mut stream = connect(pinfold);
    // The daemon may answer and close before it has read all of it.
    let _ = stream.write_all(&[head.as_bytes(), body].concat());
    parse(&read_all(stream))
}

/// Parses a response.
pub(crate) fn parse(answer: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.unwrap_or_else(|| panic!("no status: {head}"));
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}
