//! Dev only: the fixtures of the official conformance suite, behind pinfold's own transport.
//!
//! Most scenarios of the suite call tools, prompts and resources by agreed names. Here they are, served by the very
//! HTTP service that serves pinfold's tools, with the same rules for hosts, origins, bodies and sessions. `cargo xtask
//! conformance` runs it; it is never shipped. Prints its address, and ends with its standard input.
//!
//! With the socket of a daemon as its argument it serves pinfold's own tools instead, under other names.

// The SDK marks what only older revisions have as deprecated; the suite tries them all.
#![allow(deprecated)]

mod aliases;
mod asking;
mod catalogue;
mod content;
mod fixture;
mod older;

use std::io::Read;

use axum::middleware::from_fn;
use pinfold_api::client::Client;
use pinfold_mcp::{Options, http_service, http_service_of};

use crate::fixture::Fixture;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    // The suite comes as a page of this very server; pinfold's default is that no page may.
    let options = Options { allowed_origins: vec![format!("http://{address}")], ..Options::default() };
    let service = match std::env::args().nth(1) {
        None => http_service_of(Fixture::default(), &options),
        Some(socket) => http_service(Client::new(socket), &options).layer(from_fn(aliases::exchange)),
    };
    let router = axum::Router::new().nest("/mcp", service);
    println!("http://{address}/mcp");
    let over = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    tokio::select! {
        served = async { axum::serve(listener, router).await } => served,
        _ = over => Ok(()),
    }
}
