//! The web dashboard: the embedded page, signing in, and which requests of a browser are let through to `/v1`.
//!
//! `sessions` holds one-time keys and signed-in browsers, `gate` checks every request on the dashboard's port, and `pages` serves the
//! bundle. The port itself is opened by the `server` room, when an operator asks for it.
//!
//! Invariant D10, *only the dashboard's own page acts through the dashboard*: a request needs the exact `Host`, an `Origin` and
//! `Sec-Fetch-Site` of the page itself, the cookie, and the page secret. Cookies ignore ports, so the cookie also reaches any other server
//! that the browser opens as `pinfold.localhost:OTHER`; the page secret is in storage that only this origin can read.
//!
//! May use: registry, access.

pub(crate) mod gate;
mod pages;
pub(crate) mod sessions;

/// The one name under which the page is served. Browsers resolve it to loopback, and cookies set on it stay off `127.0.0.1`.
pub(crate) const HOST: &str = "pinfold.localhost";
