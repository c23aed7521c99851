//! JSON as people keep it in configuration files: comments, trailing commas, a layout of their own.
//!
//! Read with the place of everything in the text ([`parse`]), and changed by cutting and inserting text ([`edit`]), so
//! that every byte that is not ours stays as it is.

pub(crate) mod edit;
mod layout;
pub(crate) mod parse;
pub(crate) mod value;

#[cfg(test)]
mod edit_tests;
