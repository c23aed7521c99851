//! A small HTTP server on loopback: records what is posted to it, and answers as the test says.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use pinfold_testkit::until_some;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned, crypto};

/// What was posted.
#[derive(Clone, Debug)]
pub(crate) struct Posted {
    pub(crate) path: String,
    /// By lower-case name.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

/// The server; it ends with the test.
#[derive(Debug)]
pub(crate) struct Receiver {
    scheme: &'static str,
    address: SocketAddr,
    posted: Arc<Mutex<Vec<Posted>>>,
    ends: Arc<AtomicBool>,
}

impl Receiver {
    /// Answers the first posts with these status lines and headers, and all others with 204.
    pub(crate) fn answering(answers: &[&str]) -> Self {
        Self::serving(answers, None)
    }

    /// The same over TLS, with a certificate and its key in PEM.
    pub(crate) fn over_tls(certificate: &Path, key: &Path) -> Self {
        let certificate = CertificateDer::from_pem_file(certificate).expect("a certificate");
        let key = PrivateKeyDer::from_pem_file(key).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key);
        Self::serving(&[], Some(Arc::new(config.expect("a configuration"))))
    }

    fn serving(answers: &[&str], tls: Option<Arc<ServerConfig>>) -> Self {
        let scheme = if tls.is_some() { "https" } else { "http" };
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
                let answer = || answers.pop().unwrap_or_else(|| "204 No Content".to_owned());
                match &tls {
                    None => take_down(stream, &log, answer),
                    Some(config) => {
                        let connection = ServerConnection::new(Arc::clone(config)).expect("a connection");
                        take_down(StreamOwned::new(connection, stream), &log, answer);
                    }
                }
            }
        });
        Self { scheme, address, posted, ends }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}://localhost:{}{path}", self.scheme, self.address.port())
    }

    pub(crate) fn posted(&self) -> Vec<Posted> {
        self.posted.lock().expect("the log").clone()
    }

    /// Waits for this many posts.
    pub(crate) fn until(&self, count: usize) -> Vec<Posted> {
        until_some("posts", || Some(self.posted()).filter(|posted| posted.len() >= count))
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

/// Records one post and answers it. A daemon that disconnects in the middle is not an error here.
fn take_down(mut stream: impl Read + Write, log: &Mutex<Vec<Posted>>, answer: impl FnOnce() -> String) {
    let Some(posted) = read(&mut stream) else { return };
    log.lock().expect("the log").push(posted);
    let _ = write!(stream, "HTTP/1.1 {}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", answer());
    let _ = stream.flush();
}

fn read(stream: &mut impl Read) -> Option<Posted> {
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
