//! What pinfold's clients see: wire types, stable error codes, the OpenAPI document, the typed client, and
//! the stream it speaks over.
//!
//! Owns the words of the API. Contains no server behaviour: the daemon decides, this room names.

pub mod client;
pub mod error;
pub mod input;
pub mod openapi;
pub mod plain;
pub mod quiet;
pub mod types;
