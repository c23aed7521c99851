//! What pinfold's clients see: wire types, stable error codes, the OpenAPI document and the typed client.
//!
//! Owns the words of the API. Contains no server behaviour: the daemon decides, this room names.

pub mod client;
pub mod error;
pub mod input;
pub mod openapi;
pub mod types;
