//! The id in the path of a request.

use std::convert::Infallible;
use std::fmt;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use super::quote::quote;

/// An id as the client sent it, percent-decoded. It may be invalid UTF-8, which is a 404 like any other unknown id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Id(Vec<u8>);

impl Id {
    /// As text, if it is UTF-8.
    pub(super) fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// Of a path `/{id}/verb`.
    fn parse(path: &str) -> Self {
        let segment = path.rsplit('/').nth(1).unwrap_or_default();
        let mut decoded = Vec::with_capacity(segment.len());
        let mut rest = segment.as_bytes();
        while let Some((&first, after)) = rest.split_first() {
            let digits = after.get(..2).filter(|two| first == b'%' && two.iter().all(u8::is_ascii_hexdigit));
            let digits = digits.and_then(|two| std::str::from_utf8(two).ok());
            let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
            decoded.push(byte.unwrap_or(first));
            rest = if byte.is_some() { &after[2..] } else { after };
        }
        Self(decoded)
    }
}

/// In quotes, as messages show it.
impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quote(&self.0))
    }
}

impl<S: Sync> FromRequestParts<S> for Id {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::parse(parts.uri.path()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_whatever_bytes_stand_in_its_place() {
        for (path, quoted) in [
            ("/abc/output", r#""abc""#),
            ("/%3Cx%3e/signal", r#""<x>""#),
            ("/a%ffb/output", r#""a\xffb""#),
            ("/100%/output", r#""100%""#),
            ("/%+1/output", r#""%+1""#),
            ("//output", r#""""#),
        ] {
            assert_eq!(Id::parse(path).to_string(), quoted, "{path}");
        }
    }
}
