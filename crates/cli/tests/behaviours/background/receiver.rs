//! A little HTTP server on loopback: takes down what is posted to it, and answers as the test says.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use pinfold_testkit::until_some;

/// What was posted.
#[derive(Clone, Debug)]
pub(super) struct Posted {
    pub(super) path: String,
    /// By lower-case name.
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: String,
}

/// The server; it ends with the test.
#[derive(Debug)]
pub(super) struct Receiver {
    address: SocketAddr,
    posted: Arc<Mutex<Vec<Posted>>>,
    ends: Arc<AtomicBool>,
}

impl Receiver {
    /// Answers the first posts with these status lines and headers, and all others with 204.
    pub(super) fn answering(answers: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (posted, ends) = (Arc::new(Mutex::new(vec![])), Arc::new(AtomicBool::new(false)));
        let (log, end) = (Arc::clone(&posted), Arc::clone(&ends));
        let mut answers: Vec<String> = answers.iter().rev().map(ToString::to_string).collect();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if end.load(Ordering::Relaxed) {
                    return;
                }
                // A daemon that is killed in the middle is its own business.
                let Some(posted) = read(&stream) else { continue };
                log.lock().expect("the log").push(posted);
                let answer = answers.pop().unwrap_or_else(|| "204 No Content".to_owned());
                let _ = write!(&stream, "HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            }
        });
        Self { address, posted, ends }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) fn posted(&self) -> Vec<Posted> {
        self.posted.lock().expect("the log").clone()
    }

    /// Waits for this many posts.
    pub(super) fn until(&self, count: usize) -> Vec<Posted> {
        until_some("posts", || Some(self.posted()).filter(|posted| posted.len() >= count))
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

fn read(stream: &TcpStream) -> Option<Posted> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.strip_prefix("POST ")?.split(' ').next()?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    Some(Posted { path, headers, body: String::from_utf8(body).ok()? })
}
