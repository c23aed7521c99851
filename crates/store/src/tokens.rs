//! Tokens for TCP, as they are kept: by their hash, in one small file that is replaced whole.

use std::io;
use std::path::PathBuf;

use pinfold_model::units::Moment;
use pinfold_os::fsio::random;
use serde::{Deserialize, Serialize};

use crate::layout::{Home, replace_file};

/// The version of the file's format.
pub const TOKENS_FORMAT: u32 = 1;

/// A token without its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptToken {
    pub id: String,
    /// SHA-256 of its text, in hex.
    pub hash: String,
    /// The one owner it acts as; an operator without.
    pub owner: Option<String>,
    pub label: Option<String>,
    pub created: Moment,
    pub expires: Option<Moment>,
}

/// The file, and what it holds.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    tokens: Vec<KeptToken>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    format: u32,
    tokens: Vec<KeptToken>,
}

impl TokenFile {
    /// Reads the file; without one there are no tokens. One that cannot be understood is an error: to go on without
    /// it would revoke tokens, or worse, un-revoke them when it is replaced.
    pub fn open(home: &Home) -> io::Result<Self> {
        let path = home.root().join("tokens.json");
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self { path, tokens: vec![] }),
            Err(error) => return Err(error),
        };
        let content: Content = serde_json::from_slice(&text).map_err(io::Error::other)?;
        if content.format != TOKENS_FORMAT {
            return Err(io::Error::other(format!(
                "it is of format {}, this pinfold knows {TOKENS_FORMAT}",
                content.format
            )));
        }
        Ok(Self { path, tokens: content.tokens })
    }

    pub fn tokens(&self) -> &[KeptToken] {
        &self.tokens
    }

    /// Adds a token; it is known once this returns.
    pub fn add(&mut self, token: KeptToken) -> io::Result<()> {
        self.tokens.push(token);
        self.write().inspect_err(|_| drop(self.tokens.pop()))
    }

    /// Removes a token, and gives it as it was.
    pub fn remove(&mut self, id: &str) -> io::Result<Option<KeptToken>> {
        let Some(place) = self.tokens.iter().position(|token| token.id == id) else { return Ok(None) };
        let token = self.tokens.remove(place);
        match self.write() {
            Ok(()) => Ok(Some(token)),
            Err(error) => {
                self.tokens.insert(place, token);
                Err(error)
            }
        }
    }

    /// Writes the file again as it was, into a home that was made anew.
    pub fn rewrite(&self) -> io::Result<()> {
        if self.tokens.is_empty() { Ok(()) } else { self.write() }
    }

    fn write(&self) -> io::Result<()> {
        let content = Content { format: TOKENS_FORMAT, tokens: self.tokens.clone() };
        replace_file(&self.path, &serde_json::to_vec_pretty(&content).map_err(io::Error::other)?)
    }
}

/// The text of a new token: 256 random bits.
pub fn random_token() -> io::Result<String> {
    let halves: [u128; 2] = [u128::from_le_bytes(random()?), u128::from_le_bytes(random()?)];
    Ok(format!("pinfold_{:032x}{:032x}", halves[0], halves[1]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, mode_of};

    fn token(id: &str) -> KeptToken {
        let (owner, label) = (Some("ann".into()), None);
        KeptToken { id: id.into(), hash: "00".into(), owner, label, created: Moment(1), expires: Some(Moment(2)) }
    }

    #[test]
    fn tokens_survive_and_can_be_revoked_and_nobody_else_can_read_the_file() {
        let home = Scratch::home();
        let mut file = TokenFile::open(&home).expect("opened");
        file.add(token("a")).expect("added");
        file.add(token("b")).expect("added");
        assert_eq!(mode_of(&home.root().join("tokens.json")), 0o600);
        let mut file = TokenFile::open(&home).expect("opened");
        assert_eq!(file.tokens(), [token("a"), token("b")]);
        assert_eq!(file.remove("a").expect("removed"), Some(token("a")));
        assert_eq!(file.remove("a").expect("removed"), None);
        assert_eq!(TokenFile::open(&home).expect("opened").tokens(), [token("b")]);
    }

    #[test]
    fn a_file_that_is_not_understood_is_an_error() {
        let home = Scratch::home();
        for text in ["", "{", r#"{"format":9,"tokens":[]}"#] {
            std::fs::write(home.root().join("tokens.json"), text).expect("written");
            assert!(TokenFile::open(&home).is_err(), "{text}");
        }
    }

    #[test]
    fn no_two_tokens_are_alike() {
        let (one, other) = (random_token().expect("random"), random_token().expect("random"));
        assert_ne!(one, other);
        assert_eq!(one.len(), "pinfold_".len() + 64);
    }
}
