//! Edits JSON configuration files with comments, trailing commas and any layout.
//!
//! [`parse`] reads a document with the position of every value; [`edit`] inserts and removes text, so that all other bytes stay
//! unchanged and removing an entry restores the file byte for byte. That is why this is not `jsonc-parser`: its editor spreads
//! one-line objects over several lines and does not restore them (7 of the 22 layouts in `edit_tests`).

pub(crate) mod edit;
mod layout;
pub(crate) mod parse;
pub(crate) mod value;

#[cfg(test)]
mod edit_tests;
