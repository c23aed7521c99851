//! Entry points for fuzzing: parsers of untrusted bytes, without a running daemon. Each function calls the daemon's own
//! parser.

use axum::http::Uri;
use pinfold_api::error::ApiError;
use pinfold_api::types::{
    AckRequest, EndRequest, EventsQuery, GcRequest, HandoverRequest, ListQuery, OutputQuery, ShutdownRequest,
    SignalRequest, StartRequest, StopRequest, TokenRequest, WaitManyRequest, WaitQuery,
};
use pinfold_model::signal::Signal;
use pinfold_model::spec::{DEFAULT_OWNER, Defaults, Spec, Streams};
use pinfold_model::units::parse_duration;

use crate::coder;
use crate::events::log;
use crate::extract;
use crate::http_client;
use crate::output::read;
use crate::processes::list;
use crate::processes::start_request;
use crate::request_error::RequestError;
use crate::waits::wait;

/// The HTTP status and body of an error.
pub type Refused = (u16, ApiError);

/// Parses the body of `POST /v1/processes` into a spec.
pub fn start(body: &[u8], defaults: &Defaults) -> Result<Spec, Refused> {
    let parse = || {
        let request: StartRequest = extract::parse(body)?;
        request.wait.as_ref().map(|wait| parse_duration(&wait.text())).transpose()?;
        start_request::parse(request, (DEFAULT_OWNER.to_owned(), vec![]), defaults)
    };
    parse().map_err(refused)
}

/// Parses the body as that of every other route.
pub fn bodies(body: &[u8]) -> Vec<Result<(), Refused>> {
    let signal = || Ok(Signal::parse(&extract::parse::<SignalRequest>(body)?.signal).map(|_| ())?);
    let wait_many = || {
        let request: WaitManyRequest = extract::parse(body)?;
        wait::limit(request.timeout.map(|timeout| timeout.text()).as_deref()).map(drop)
    };
    let tried = [
        signal(),
        wait_many(),
        extract::parse::<StopRequest>(body).map(drop),
        extract::parse::<HandoverRequest>(body).map(drop),
        extract::parse::<AckRequest>(body).map(drop),
        extract::parse::<EndRequest>(body).map(drop),
        extract::parse::<TokenRequest>(body).map(drop),
        extract::parse::<GcRequest>(body).map(drop),
        extract::parse::<ShutdownRequest>(body).map(drop),
    ];
    tried.into_iter().map(|tried| tried.map_err(refused)).collect()
}

/// Parses the query as that of every route that has one.
pub fn queries(uri: &Uri) -> Vec<Result<(), Refused>> {
    let output = |streams| read::check(&extract::parse_query::<OutputQuery>(uri)?, streams).map(drop);
    let wait = || {
        let query: WaitQuery = extract::parse_query(uri)?;
        wait::limit(query.timeout.as_deref())?;
        wait::parse(query).map(drop)
    };
    let list = || {
        let query: ListQuery = extract::parse_query(uri)?;
        list::parse_filter(&query)?;
        query.page.as_deref().map_or(Ok(()), |page| {
            let place = list::parse_start(page)?;
            assert_eq!(list::parse_start(&list::render_start(&place)).ok(), Some(place), "{page}");
            Ok(())
        })
    };
    let events = || log::parse_kinds(extract::parse_query::<EventsQuery>(uri)?.kinds.as_deref()).map(drop);
    let tried = [output(Streams::Merged), output(Streams::Separate), wait(), list(), events()];
    tried.into_iter().map(|tried| tried.map_err(refused)).collect()
}

/// Parses the body of coder's `POST /start`.
pub fn coder_start(body: &[u8]) -> Result<(), String> {
    coder::try_start(body)
}

/// Parses the output of coder's environment hook; returns the number of variables it sets.
pub fn coder_env(said: &[u8]) -> usize {
    coder::try_env(said)
}

/// Scheme, host and port of a webhook's address. `None` if the address is invalid.
pub fn webhook(address: &str) -> Option<String> {
    let place = http_client::Destination::parse(address).ok()?;
    let scheme = if place.secure { "https" } else { "http" };
    Some(format!("{scheme}://{}", place.authority))
}

fn refused(error: RequestError) -> Refused {
    (error.status().as_u16(), error.0)
}
