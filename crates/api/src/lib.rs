//! What pinfold's clients see: wire types, stable error codes, the OpenAPI document, the typed client and its transport.
//!
//! Owns the names and shapes of the API. Contains no server behaviour: that is in the daemon.

pub mod client;
pub mod error;
pub mod input;
pub mod openapi;
pub mod plain;
pub mod quiet;
pub mod types;

pub use pinfold_model::trace;
