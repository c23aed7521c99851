//! Against a real collector, which decodes what is sent with the definitions of OpenTelemetry.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use pinfold_api::types::StartRequest;
use pinfold_testkit::{Pidfd, until};

use super::{TRACE, sending_to, traceparent};

/// Rotel, a collector that prints what it receives.
struct Collector {
    child: Child,
    port: u16,
    printed: Arc<Mutex<String>>,
}

impl Collector {
    /// Starts the one in PINFOLD_COLLECTOR; `None` if that is not set.
    fn start() -> Option<Self> {
        let program = std::env::var_os("PINFOLD_COLLECTOR").map(PathBuf::from)?;
        let free =
            || TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
        let (port, other) = (free(), free());
        let mut command = Command::new(program);
        command.arg("start").arg(format!("--otlp-http-endpoint=127.0.0.1:{port}"));
        command.arg(format!("--otlp-grpc-endpoint=127.0.0.1:{other}")).args(["--exporter", "blackhole"]);
        command.args(["--debug-log", "traces", "--debug-log", "metrics", "--debug-log-verbosity", "detailed"]);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).stdin(Stdio::null()).spawn().expect("a collector");
        let printed = Arc::<Mutex<String>>::default();
        let (stdout, log) = (child.stdout.take().expect("its stdout"), Arc::clone(&printed));
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let mut log = log.lock().expect("the log");
                log.push_str(&line);
                log.push('\n');
            }
        });
        let collector = Self { child, port, printed };
        until("the collector listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(collector)
    }

    fn until_printed(&self, text: &str) {
        until(&format!("the collector prints {text}"), || self.printed.lock().expect("the log").contains(text));
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        if let Some(pidfd) = Pidfd::open(self.child.id()) {
            pidfd.signal(9);
        }
        let _ = self.child.wait();
    }
}

#[test]
fn a_real_collector_takes_spans_and_metrics() {
    let Some(collector) = Collector::start() else {
        println!("SKIPPED: set PINFOLD_COLLECTOR to the rotel-agent of the PyPI package rotel");
        return;
    };
    let pinfold = sending_to(&format!("http://127.0.0.1:{}", collector.port), "");
    let request = StartRequest {
        command: Some("exit 3".into()),
        traceparent: Some(traceparent()),
        tool: Some("execute".into()),
        ..StartRequest::default()
    };
    let id = pinfold.start_request(&request).record.id;
    pinfold.wait_finished(&id);
    for text in [
        "service.name: Str(pinfold)",
        &format!("Trace ID       : {TRACE}"),
        "Name           : start",
        "Name           : execute_tool execute",
        "gen_ai.tool.name: Str(execute)",
        "process.exit.code: Int(3)",
        &format!("pinfold.process.id: Str({id})"),
        "pinfold.processes.ended",
    ] {
        collector.until_printed(text);
    }
}
