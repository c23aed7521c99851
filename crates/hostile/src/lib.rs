//! Dev only: everything of pinfold that reads bytes from outside, one function each, and what must hold for any bytes.
//!
//! Owns the targets: a target takes bytes, hands them to the product's own code, and panics if what came of it is
//! wrong; that it may not panic by itself, hang or eat memory goes without saying. fuzz/ looks for bytes that break one,
//! guided by coverage, and `tests/corpus.rs` tries those of fuzz/corpus again, without a fuzzer. Nothing of the product
//! may use it.

mod agents;
mod config;
mod feed;
mod http;
mod link;
mod mcp;
mod record;
mod search;
mod segments;
mod view;
mod webhook;

/// Tries some bytes.
pub type Target = fn(&[u8]);

/// Every target by its name, which is also that of its corpus and of its program in fuzz/.
pub const TARGETS: &[(&str, Target)] = &[
    ("agents", agents::target),
    ("bodies", http::bodies),
    ("coder", http::coder),
    ("config", config::target),
    ("link", link::target),
    ("mcp", mcp::target),
    ("queries", http::queries),
    ("record", record::target),
    ("search", search::target),
    ("segments", segments::target),
    ("start", http::start),
    ("view", view::target),
    ("webhook", webhook::target),
];

/// Tries some bytes on the target of this name.
pub fn run(name: &str, bytes: &[u8]) {
    match TARGETS.iter().find(|(known, _)| *known == name) {
        Some((_, target)) => target(bytes),
        None => panic!("there is no target `{name}`"),
    }
}
