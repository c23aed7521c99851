//! Dev only: fuzz targets for everything in pinfold that parses untrusted bytes.
//!
//! A target passes bytes to the product's own code and panics if the result violates what must hold for any input. The
//! code must also not panic, hang or use much memory. fuzz/ searches for bytes that break a target, guided by coverage;
//! `tests/corpus.rs` runs the inputs in fuzz/corpus again, without a fuzzer. The product must not depend on this crate.

mod agents;
mod config;
mod feed;
mod http;
mod link;
mod mcp;
mod record;
mod sandbox;
mod search;
mod segments;
mod view;
mod webhook;

/// Runs one input.
pub type Target = fn(&[u8]);

/// Every target by name; its corpus and its program in fuzz/ have the same name.
pub const TARGETS: &[(&str, Target)] = &[
    ("agents", agents::target),
    ("bodies", http::bodies),
    ("coder", http::coder),
    ("config", config::target),
    ("link", link::target),
    ("mcp", mcp::target),
    ("queries", http::queries),
    ("record", record::target),
    ("sandbox", sandbox::target),
    ("search", search::target),
    ("segments", segments::target),
    ("start", http::start),
    ("view", view::target),
    ("webhook", webhook::target),
];

/// Runs one input on the target with this name.
pub fn run(name: &str, bytes: &[u8]) {
    match TARGETS.iter().find(|(known, _)| *known == name) {
        Some((_, target)) => target(bytes),
        None => panic!("there is no target `{name}`"),
    }
}
