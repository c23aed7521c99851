//! Attaching to a process: a WebSocket over the daemon's socket.

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hyper::body::Bytes;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::{Client, ClientError, error_response, of_process, query};
use crate::quiet::QuietStream;
use crate::types::{AttachControl, AttachNotice, AttachQuery};

/// A message from the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// Output of the process.
    Bytes(Bytes),
    /// A change of the process, or the fate of our input.
    Notice(Box<AttachNotice>),
}

/// The receiving half of an attachment.
#[derive(Debug)]
pub struct AttachReader(SplitStream<WebSocketStream<QuietStream>>);

/// The sending half.
#[derive(Debug)]
pub struct AttachWriter(SplitSink<WebSocketStream<QuietStream>, Message>);

impl Client {
    /// `GET /v1/processes/{id}/attach`. It ends when the daemon stops: attach again from the next byte on.
    pub async fn attach(&self, id: &str, query: &AttachQuery) -> Result<(AttachReader, AttachWriter), ClientError> {
        let fields = query::encode(query).map_err(|error| ClientError::Protocol(error.to_string()))?;
        let address = format!("ws://localhost{}{fields}", of_process(id, "/attach"));
        let mut request = address.into_client_request().map_err(|error| ClientError::Protocol(error.to_string()))?;
        request.headers_mut().extend(self.owner_headers.iter().cloned());
        let stream = self.transport.dial().await.map_err(|source| self.transport.unreachable(source))?;
        match tokio_tungstenite::client_async(request, stream).await {
            Ok((socket, _)) => {
                let (writer, reader) = socket.split();
                Ok((AttachReader(reader), AttachWriter(writer)))
            }
            Err(Error::Http(response)) => {
                let body = response.body().as_deref().unwrap_or_default();
                Err(error_response(response.status(), body))
            }
            Err(Error::Io(source)) => Err(self.transport.unreachable(source)),
            Err(error) => Err(self.transport.unreachable(std::io::Error::other(error))),
        }
    }
}

impl AttachReader {
    /// The next message; `None` when the connection has closed, for any reason.
    pub async fn next(&mut self) -> Option<Result<Received, ClientError>> {
        loop {
            match self.0.next().await?.ok()? {
                Message::Binary(bytes) => return Some(Ok(Received::Bytes(bytes))),
                Message::Text(text) => {
                    let notice = serde_json::from_str(&text).map(|notice| Received::Notice(Box::new(notice)));
                    return Some(notice.map_err(|error| ClientError::Protocol(error.to_string())));
                }
                Message::Close(_) => return None,
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }
}

impl AttachWriter {
    /// Sends input; false if the connection has closed.
    pub async fn send(&mut self, bytes: Bytes) -> bool {
        self.0.send(Message::Binary(bytes)).await.is_ok()
    }

    /// Sends a control message; false if the connection has closed.
    pub async fn control(&mut self, control: &AttachControl) -> bool {
        let Ok(text) = serde_json::to_string(control) else { return false };
        self.0.send(Message::Text(text.into())).await.is_ok()
    }
}
