//! Development tasks, run as `cargo xtask`.
//!
//! Owns no product code, and nothing of the product may use it. A library, so that `cargo test` runs the same checks.

pub mod bench;
pub mod cargo_build;
pub mod chaos;
pub mod checks;
pub mod demo;
mod document_section;
pub mod external;
pub mod generate;
pub mod package;
pub mod source_map;
pub mod tidy;

use std::path::PathBuf;

use num_traits as _; // unused here, but keeps the features of the build the same: see the root manifest

/// The root of the workspace.
pub fn workspace_root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).map_or(here.clone(), PathBuf::from)
}
