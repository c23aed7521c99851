//! What reads bytes from outside, as the routes and the start of the daemon do, with no daemon around it: for whoever
//! tries it with any bytes. Owns no parsing: each function calls what the daemon calls.

use axum::http::Uri;
use pinfold_api::error::ApiError;
use pinfold_api::types::{
    AckRequest, EndRequest, EventsQuery, GcRequest, HandoverRequest, ListQuery, OutputQuery, ShutdownRequest,
    SignalRequest, StartRequest, StopRequest, TokenRequest, WaitManyRequest, WaitQuery,
};
use pinfold_model::signal::Signal;
use pinfold_model::spec::{Defaults, Spec, Streams};
use pinfold_model::units::parse_duration;

use crate::coder;
use crate::events::log;
use crate::events::webhook;
use crate::extract;
use crate::output::read;
use crate::processes::list;
use crate::processes::start;
use crate::refusal::Refusal;
use crate::waits::wait;

/// What a refusal would be to a client: its status and its body.
pub type Refused = (u16, ApiError);

/// The body of `POST /v1/processes`, admitted.
pub fn start(body: &[u8], defaults: &Defaults) -> Result<Spec, Refused> {
    let parse = || {
        let request: StartRequest = extract::parse(body)?;
        request.wait.as_ref().map(|wait| parse_duration(&wait.text())).transpose()?;
        Ok(start::draft(request)?.try_into_spec(defaults)?)
    };
    parse().map_err(refused)
}

/// A body of every other route that takes one.
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

/// A query, as each route that has one takes it.
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
            let place = list::parse_place(page)?;
            assert_eq!(list::parse_place(&list::render_place(&place)).ok(), Some(place), "{page}");
            Ok(())
        })
    };
    let events = || log::parse_kinds(extract::parse_query::<EventsQuery>(uri)?.kinds.as_deref()).map(drop);
    let tried = [output(Streams::Merged), output(Streams::Separate), wait(), list(), events()];
    tried.into_iter().map(|tried| tried.map_err(refused)).collect()
}

/// The body of coder's `POST /start`: whether it is taken, or what is wrong with it.
pub fn coder_start(body: &[u8]) -> Result<(), String> {
    coder::try_start(body)
}

/// What the hook for the environment of coder's commands said: how many variables it sets.
pub fn coder_env(said: &[u8]) -> usize {
    coder::try_env(said)
}

/// Where a webhook with this address would go, as scheme, host and port. `None` if it is never sent.
pub fn webhook(address: &str) -> Option<String> {
    let place = webhook::Destination::parse(address).ok()?;
    let scheme = if place.secure { "https" } else { "http" };
    Some(format!("{scheme}://{}", place.authority))
}

fn refused(refusal: Refusal) -> Refused {
    (refusal.status().as_u16(), refusal.0)
}
