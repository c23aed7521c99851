//! Dev only: what keeps the project honest. `tidy` checks the tree, `generate` writes the documents that come from
//! the code, `demo` shows the main job, `bench` measures what pinfold costs, `instructions` that it
//! costs no more than before, `escapes` tries every way out, `chaos`
//! attacks it from all sides, `fuzz` and `schemathesis` try bad input at scale, `clients` and `conformance` bring in the
//! programs of others that judge it, `scenarios` counts what those cost their models.
//!
//! Owns no product code, and nothing of the product may use it. A library, so that `cargo test` runs the same checks.

pub mod bench;
pub mod build;
pub mod chaos;
pub mod clients;
pub mod conformance;
pub mod demo;
pub mod escapes;
pub mod fuzz;
pub mod generate;
pub mod instructions;
pub mod scenarios;
pub mod schemathesis;
mod section;
pub mod simulate;
pub mod tidy;

use std::path::PathBuf;

use num_traits as _; // not used, only built as the tests build it: see the root manifest

/// The root of the workspace, as it was when this was built.
pub fn workspace_root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).map_or(here.clone(), PathBuf::from)
}
