//! JSON-RPC over stdin and stdout of a program: for MCP servers and for our bridges.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};

type Waiting = Arc<Mutex<HashMap<u64, Sender<Value>>>>;

/// A JSON-RPC server. Calls may come from several threads.
#[derive(Debug)]
pub(super) struct Wire {
    child: Child,
    writer: Mutex<(u64, ChildStdin)>,
    waiting: Waiting,
}

impl Wire {
    pub(super) fn open(command: &mut Command) -> anyhow::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (stdin, stdout) = (child.stdin.take().context("no stdin")?, child.stdout.take().context("no stdout")?);
        let waiting = Waiting::default();
        let answers = waiting.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
                let Some(id) = message["id"].as_u64() else { continue };
                if let Some(caller) = locked(&answers).remove(&id) {
                    let _ = caller.send(message);
                }
            }
            // No more answers: pending calls fail because their channel is closed.
            locked(&answers).clear();
        });
        Ok(Wire { child, writer: Mutex::new((0, stdin)), waiting })
    }

    /// The result of a call.
    pub(super) fn call(&self, method: &str, params: Value, patience: Duration) -> anyhow::Result<Value> {
        let (sender, receiver) = channel();
        {
            let mut writer = locked(&self.writer);
            writer.0 += 1;
            let id = writer.0;
            locked(&self.waiting).insert(id, sender);
            let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
            writer.1.write_all(format!("{message}\n").as_bytes())?;
        }
        let mut answer = receiver.recv_timeout(patience).with_context(|| format!("no answer to {method}"))?;
        if !answer["error"].is_null() {
            bail!("{method}: {}", answer["error"]);
        }
        Ok(answer["result"].take())
    }

    /// A notification.
    pub(super) fn notify(&self, method: &str) -> anyhow::Result<()> {
        let message = json!({ "jsonrpc": "2.0", "method": method });
        Ok(locked(&self.writer).1.write_all(format!("{message}\n").as_bytes())?)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
