//! Development only: serves the fixtures of the official MCP conformance suite with pinfold's own transport.
//!
//! Most scenarios of the suite call tools, prompts and resources with agreed names. This program offers them through
//! the HTTP service that serves pinfold's tools, with the same rules for hosts, origins, bodies and sessions. `cargo
//! xtask conformance` runs it; it is not shipped. It prints its URL, and exits when its stdin is closed.
//!
//! With the path of a daemon's socket as argument, it serves pinfold's own tools instead, under the suite's names.

// The SDK marks methods of older protocol revisions as deprecated; the suite tests them all.
#![allow(deprecated)]

mod aliases;
mod catalogue;
mod content;
mod fixture;
mod input_required;
mod server_requests;

use std::io::{Read, Write};

use axum::middleware::from_fn;
use pinfold_api::client::Client;
use pinfold_mcp::{Options, http_service, http_service_of};

use crate::fixture::Fixture;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    // The suite sends this server's own origin, as a page of it would; by default pinfold accepts no origin.
    let options = Options { allowed_origins: vec![format!("http://{address}")], ..Options::default() };
    let service = match std::env::args().nth(1) {
        None => http_service_of(Fixture::default(), &options),
        Some(socket) => http_service(Client::new(socket), &options).layer(from_fn(aliases::translate)),
    };
    let router = axum::Router::new().nest("/mcp", service);
    writeln!(std::io::stdout(), "http://{address}/mcp")?;
    let over = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    tokio::select! {
        served = async { axum::serve(listener, router).await } => served,
        _ = over => Ok(()),
    }
}
