//! The page and its files, embedded in the program; `cargo xtask dashboard` builds them from `dashboard/`.
//!
//! The content security policy allows scripts and styles from this origin only, and no inline script. xterm.js makes `<style>` elements, which carry
//! the nonce of the page.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use pinfold_store::ids::random_mark;

use crate::request_error::RequestError;

/// Where the nonce goes in the page.
const NONCE: &str = "{{nonce}}";

/// One file of the bundle.
#[derive(Debug)]
pub(super) struct Page {
    path: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

const PAGES: &[Page] = &[
    Page { path: "/", kind: "text/html; charset=utf-8", bytes: include_bytes!("bundle/index.html") },
    Page { path: "/assets/app.js", kind: "text/javascript", bytes: include_bytes!("bundle/app.js") },
    Page { path: "/assets/app.css", kind: "text/css", bytes: include_bytes!("bundle/app.css") },
    Page { path: "/assets/terminal.js", kind: "text/javascript", bytes: include_bytes!("bundle/terminal.js") },
    Page { path: "/assets/terminal.css", kind: "text/css", bytes: include_bytes!("bundle/terminal.css") },
    Page { path: "/assets/icon.svg", kind: "image/svg+xml", bytes: include_bytes!("bundle/icon.svg") },
];

/// The file at a path, if there is one.
pub(super) fn find(path: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.path == path)
}

impl Page {
    /// The file as an answer of the dashboard at this host.
    pub(super) fn response(&self, host: &str) -> Result<Response, RequestError> {
        let kind = [(header::CONTENT_TYPE, HeaderValue::from_static(self.kind))];
        if self.path != "/" {
            return Ok((kind, self.bytes).into_response());
        }
        let nonce = random_mark().map_err(RequestError::internal)?;
        let html = String::from_utf8_lossy(self.bytes).replace(NONCE, &nonce);
        let mut response = (kind, html).into_response();
        let policy = HeaderValue::from_str(&policy(host, &nonce)).map_err(RequestError::internal)?;
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
        Ok(response)
    }
}

fn policy(host: &str, nonce: &str) -> String {
    format!(
        "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; img-src 'self'; \
         connect-src 'self' ws://{host}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

/// Headers of every answer: no other page frames, embeds, reads or caches it.
pub(super) fn protect(headers: &mut HeaderMap) {
    let fixed = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if !headers.contains_key(header::CONTENT_SECURITY_POLICY) {
        let policy = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; sandbox");
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_no_inline_script_and_its_files_are_all_there() {
        let html = String::from_utf8_lossy(find("/").expect("the page").bytes);
        assert!(html.contains(NONCE), "{html}");
        for quoted in html.split('"').filter(|text| text.starts_with("/assets/")) {
            assert!(find(quoted).is_some(), "{quoted}");
        }
        assert!(!html.contains("onclick") && !html.contains("javascript:"));
        assert!(html.matches("<script").count() == html.matches("<script type=\"module\" src=").count());
    }

    #[test]
    fn the_policy_has_no_exception() {
        let policy = policy("pinfold.localhost:1", "n");
        for word in ["unsafe", "*", "data:", "blob:", "http:"] {
            assert!(!policy.contains(word), "{word}");
        }
    }
}
