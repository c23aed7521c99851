//! What screens and dashboards ask for: samples, search, the inbox, a stream of output; and removing a process.

use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};

use super::transport::{Ask, Connection, Transport};
use super::{Client, ClientError, delete, error_response, get, of_process, parsed, post, required, sse};
use crate::types::{
    Inbox, InboxQuery, OutputQuery, Range, Removed, Samples, SamplesQuery, SearchPage, SearchQuery, SeenAnswer,
    SeenRequest,
};

/// Output as it is written. After an error, reconnect at the cursor of the first byte not received.
#[derive(Debug)]
pub struct OutputStream {
    /// Cursor of the next byte.
    pub cursor: u64,
    /// Range before the first byte that is no longer stored.
    pub gap: Option<Range>,
    transport: Arc<Transport>,
    body: Incoming,
    /// Not pooled: it closes when the stream is dropped.
    _connection: Connection,
}

impl Client {
    /// `GET /v1/processes/{id}/samples`.
    pub async fn samples(&self, id: &str, query: &SamplesQuery) -> Result<Samples, ClientError> {
        self.ask(get(&of_process(id, "/samples"), query)?).await
    }

    /// `GET /v1/search`.
    pub async fn search(&self, query: &SearchQuery) -> Result<SearchPage, ClientError> {
        self.ask(get("/v1/search", query)?).await
    }

    /// `GET /v1/inbox`.
    pub async fn inbox(&self, query: &InboxQuery) -> Result<Inbox, ClientError> {
        self.ask(get("/v1/inbox", query)?).await
    }

    /// `POST /v1/inbox/seen`.
    pub async fn inbox_seen(&self, through: u64) -> Result<SeenAnswer, ClientError> {
        self.ask(Ask { repeatable: true, ..post("/v1/inbox/seen", &SeenRequest { through })? }).await
    }

    /// `DELETE /v1/processes/{id}`.
    pub async fn remove(&self, id: &str) -> Result<Removed, ClientError> {
        self.ask(delete(&of_process(id, ""))).await
    }

    /// `GET /v1/processes/{id}/output` as a stream of bytes; sets the query's `follow` and `format`.
    pub async fn output_stream(&self, id: &str, query: &OutputQuery) -> Result<OutputStream, ClientError> {
        let query = OutputQuery { follow: Some(true), format: Some("raw".to_owned()), ..query.clone() };
        let ask = get(&of_process(id, "/output"), &query)?;
        let (response, connection) = self.transport.send(&ask, &self.owner_headers, "*/*").await?;
        let (status, headers) = (response.status(), response.headers().clone());
        if !status.is_success() {
            let body = http_body_util::Limited::new(response.into_body(), sse::MAX_MESSAGE);
            let body = body.collect().await.map_err(|error| ClientError::Protocol(error.to_string()))?;
            return Err(error_response(status, &body.to_bytes()));
        }
        let gap = match (parsed(&headers, "pinfold-gap-from")?, parsed(&headers, "pinfold-gap-to")?) {
            (Some(from), Some(to)) => Some(Range { from, to }),
            _ => None,
        };
        Ok(OutputStream {
            cursor: required(&headers, "pinfold-cursor")?,
            gap,
            transport: Arc::clone(&self.transport),
            body: response.into_body(),
            _connection: connection,
        })
    }
}

impl OutputStream {
    /// The next bytes; `None` when the output is complete.
    pub async fn next(&mut self) -> Option<Result<Bytes, ClientError>> {
        loop {
            match self.body.frame().await? {
                Ok(frame) => {
                    let Ok(bytes) = frame.into_data() else { continue };
                    self.cursor += bytes.len() as u64;
                    return Some(Ok(bytes));
                }
                Err(error) => return Some(Err(self.transport.disconnected(&error))),
            }
        }
    }
}
