//! Parses the fields of a start request that make a process a service.

use std::collections::BTreeMap;

use pinfold_api::types::{self, Port, StartRequest};
use pinfold_model::ready::{self, LoopbackHost, Ready, ReadyBy, ReadyPort, parse_loopback};
use pinfold_model::restart::{Restart, When};
use pinfold_model::service::Service;
use pinfold_model::spec;
use pinfold_model::units::parse_duration;

use crate::request_error::RequestError;

/// Takes these fields out of a request. `model` checks their combination.
pub(crate) fn parse(request: &mut StartRequest) -> Result<Service, RequestError> {
    let ports = std::mem::take(&mut request.ports).into_iter();
    let ports: BTreeMap<_, _> =
        ports.map(|(name, port)| Ok((name, lease(port)?))).collect::<Result<_, RequestError>>()?;
    let ready = request.ready.take().map(parse_ready).transpose()?;
    let restart = request.restart.take().map(parse_restart).transpose()?.flatten();
    Ok(Service { ready, ports, restart, life: None })
}

fn lease(port: Port) -> Result<Option<u16>, RequestError> {
    match port {
        Port::Word(word) if word == "lease" || word == "any" => Ok(None),
        Port::Word(word) => match word.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => {
                let word: String = word.chars().take(40).collect();
                Err(RequestError::invalid(format!("ports: `{word}`: use `lease` for any free port, or a number")))
            }
        },
        Port::Number(number) => port_number("ports", number).map(Some),
    }
}

fn port_number(field: &str, number: u64) -> Result<u16, RequestError> {
    u16::try_from(number)
        .map_err(|_| RequestError::invalid(format!("{field}: {number} is not a TCP port: use at most 65535")))
}

/// `None` for `never`.
fn parse_restart(asked: types::Restart) -> Result<Option<Restart>, RequestError> {
    let types::RestartPolicy { when, initial, factor, max, limit, window, stable } = match asked {
        types::Restart::When(when) => types::RestartPolicy { when, ..types::RestartPolicy::default() },
        types::Restart::Policy(policy) => policy,
    };
    let when = match when.as_str() {
        "never" => return Ok(None),
        "on_failure" | "on-failure" => When::OnFailure,
        "always" => When::Always,
        "after_turn" | "after-turn" => When::AfterTurn,
        other => {
            let other: String = other.chars().take(40).collect();
            return Err(RequestError::invalid(format!(
                "restart `{other}`: use never, on_failure, always or after_turn"
            )));
        }
    };
    let mut restart = Restart::new(when);
    let spans = [
        (&mut restart.max, max),
        (&mut restart.initial, initial),
        (&mut restart.window, window),
        (&mut restart.stable, stable),
    ];
    for (place, asked) in spans {
        if let Some(asked) = asked {
            *place = parse_duration(&asked.text())?;
        }
    }
    restart.limit = limit.unwrap_or(restart.limit);
    // A number out of range is kept, so that `model` reports it.
    restart.factor_percent = factor.map_or(restart.factor_percent, |factor| (factor * 100.0).round() as u32);
    Ok(Some(restart))
}

fn parse_ready(asked: types::Ready) -> Result<Ready, RequestError> {
    let timeout = asked.timeout.as_ref().map(|timeout| parse_duration(&timeout.text())).transpose()?;
    let timeout = timeout.unwrap_or(ready::TIMEOUT);
    let port = asked.port.clone().map(ready_port).transpose()?;
    let peer = asked.peer.unwrap_or(false);
    if asked.status.is_some() && asked.http.is_none() {
        return Err(RequestError::invalid("ready.status requires `http`: set it to a path such as /health"));
    }
    let by = match (port, asked.http, asked.output, peer) {
        (port, Some(http), None, false) => by_http(port, &http, asked.status)?,
        (Some(port), None, None, false) => ReadyBy::Port { port },
        (None, None, Some(pattern), false) => ReadyBy::Output { pattern },
        (None, None, None, true) => ReadyBy::Peer,
        (None, None, None, false) => {
            return Err(RequestError::invalid("ready is empty: give `port`, `http`, `output` or `peer`"));
        }
        _ => {
            let message = "ready: set only one of `port`, `http`, `output` and `peer` (except `port` with `http`)";
            return Err(RequestError::invalid(message));
        }
    };
    Ok(Ready { by, timeout })
}

fn by_http(port: Option<ReadyPort>, http: &str, status: Option<u16>) -> Result<ReadyBy, RequestError> {
    if http.starts_with('/') {
        let (host, port) = (LoopbackHost::Localhost, port.unwrap_or(ReadyPort::Any));
        return Ok(ReadyBy::Http { host, port, path: http.to_owned(), status });
    }
    let (host, number, path) = parse_loopback(http).map_err(|bad| spec::SpecError::BadService(bad.into()))?;
    if port.is_some() {
        return Err(RequestError::invalid(
            "ready: the address in `http` has its own port: leave out `port`, or use a path",
        ));
    }
    Ok(ReadyBy::Http { host, port: ReadyPort::Number(number), path, status })
}

fn ready_port(port: Port) -> Result<ReadyPort, RequestError> {
    match port {
        Port::Number(number) => port_number("ready.port", number).map(ReadyPort::Number),
        Port::Word(word) if word == "any" => Ok(ReadyPort::Any),
        Port::Word(word) => match word.parse::<u64>() {
            Ok(number) => port_number("ready.port", number).map(ReadyPort::Number),
            Err(_) => Ok(ReadyPort::Leased(word)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(ready: types::Ready) -> Result<ReadyBy, String> {
        parse_ready(ready).map(|ready| ready.by).map_err(|error| error.0.message)
    }

    fn asked() -> types::Ready {
        types::Ready::default()
    }

    #[test]
    fn each_way_to_be_ready_is_read() {
        let port = |port: &str| parsed(types::Ready { port: Some(port.into()), ..asked() });
        assert_eq!(port("3000"), Ok(ReadyBy::Port { port: ReadyPort::Number(3000) }));
        assert_eq!(port("any"), Ok(ReadyBy::Port { port: ReadyPort::Any }));
        assert_eq!(port("PORT"), Ok(ReadyBy::Port { port: ReadyPort::Leased("PORT".into()) }));
        let http = parsed(types::Ready { http: Some("/up".into()), port: Some("PORT".into()), ..asked() });
        let Ok(ReadyBy::Http { host, port, path, status }) = http else { panic!("{http:?}") };
        assert_eq!(
            (host, port, path.as_str(), status),
            (LoopbackHost::Localhost, ReadyPort::Leased("PORT".into()), "/up", None)
        );
        assert_eq!(parsed(types::Ready { peer: Some(true), ..asked() }), Ok(ReadyBy::Peer));
    }

    #[test]
    fn what_contradicts_itself_is_refused_with_the_way_out() {
        let refuse = |ready| parsed(ready).expect_err("refused");
        assert!(refuse(asked()).contains("`port`, `http`, `output` or `peer`"));
        assert!(refuse(types::Ready { port: Some(Port::Number(70_000)), ..asked() }).contains("65535"));
        assert!(refuse(types::Ready { output: Some("x".into()), peer: Some(true), ..asked() }).contains("one of"));
        assert!(refuse(types::Ready { status: Some(200), port: Some("any".into()), ..asked() }).contains("`http`"));
        let twice = types::Ready { http: Some("http://localhost:1/".into()), port: Some("any".into()), ..asked() };
        assert!(refuse(twice).contains("own port"));
        assert!(refuse(types::Ready { http: Some("http://example.org/".into()), ..asked() }).contains("this machine"));
    }
}
