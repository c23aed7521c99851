//! Requests to the daemon: bodies, queries, bodies of coder's API. A rejected one is a 4xx with a message.

use std::time::Duration;

use axum::http::Uri;
use pinfold_daemon::fuzz_entry::{self, Refused};
use pinfold_model::spec::{Defaults, MAX_GRACE, MIN_OUTPUT_LIMIT, Program, RESERVED_ENV, Spec};

use crate::feed::text;

pub(crate) fn start(data: &[u8]) {
    let defaults = Defaults {
        cwd: "/work".into(),
        home: "/home/ann".into(),
        grace: Duration::from_secs(5),
        output_limit: 64 << 20,
        ..Defaults::default()
    };
    match fuzz_entry::start(data, &defaults) {
        Err(refused) => check_refused(&refused),
        Ok(spec) => check_spec(spec),
    }
}

pub(crate) fn bodies(data: &[u8]) {
    fuzz_entry::bodies(data).iter().filter_map(|tried| tried.as_ref().err()).for_each(check_refused);
}

pub(crate) fn queries(data: &[u8]) {
    let query = text(data);
    // A query that no request line can contain never gets this far.
    let Ok(uri) = format!("/v1/processes?{query}").parse::<Uri>() else { return };
    fuzz_entry::queries(&uri).iter().filter_map(|tried| tried.as_ref().err()).for_each(check_refused);
}

pub(crate) fn coder(data: &[u8]) {
    if let Err(message) = fuzz_entry::coder_start(data) {
        assert!(!message.is_empty());
    }
    assert!(fuzz_entry::coder_env(data) <= data.len());
}

fn check_refused((status, error): &Refused) {
    assert!((400..500).contains(status), "{status} {error:?}");
    assert!(!error.message.trim().is_empty(), "{error:?}");
}

/// Checks that every `Spec` that can be constructed is valid.
fn check_spec(spec: Spec) {
    let arguments = match &spec.program {
        Program::Shell { shell, script } => vec![shell, script],
        Program::Argv { argv } => argv.iter().collect(),
    };
    assert!(!arguments.is_empty() && arguments.iter().all(|argument| !argument.contains('\0')), "{spec:?}");
    assert!(spec.cwd.is_absolute(), "{spec:?}");
    assert!(spec.stop.grace <= MAX_GRACE && spec.output_limit >= MIN_OUTPUT_LIMIT, "{spec:?}");
    assert!(spec.env.keys().all(|name| !name.is_empty() && !name.contains(['=', '\0'])), "{spec:?}");
    assert!(!RESERVED_ENV.iter().any(|name| spec.env.contains_key(*name)), "{spec:?}");
    let bounded = [spec.time_limit, spec.idle_limit, spec.lifetime.grace()];
    assert!(bounded.iter().flatten().all(|time| *time <= Duration::from_secs(1_000_000_000)), "{spec:?}");
    let spec = spec.without_values();
    let written = serde_json::to_vec(&spec).expect("it can be serialized");
    assert_eq!(serde_json::from_slice::<Spec>(&written).expect("and deserialized"), spec);
}
