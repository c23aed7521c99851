//! The file with the tokens for TCP: stores only their hashes, and is replaced as a whole.

use std::io;
use std::path::{Path, PathBuf};

use pinfold_model::units::Moment;
use pinfold_os::fsio::random;
use serde::{Deserialize, Serialize};

use crate::Durability;
use crate::layout::{Home, replace_file};

/// The version of the file's format.
pub const TOKENS_FORMAT: u32 = 1;

/// A token without its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptToken {
    pub id: String,
    /// SHA-256 of its text, in hex.
    pub hash: String,
    /// The owner it acts as; `None` for an operator.
    pub owner: Option<String>,
    pub label: Option<String>,
    pub created: Moment,
    pub expires: Option<Moment>,
}

/// The file and its content.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    tokens: Vec<KeptToken>,
    /// Why the file cannot be read. Then no token is accepted, and the file is not written to.
    damage: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    format: u32,
    tokens: Vec<KeptToken>,
}

impl TokenFile {
    /// Reads the file; if there is none, there are no tokens. If it cannot be read, no token is accepted, and the file is
    /// left unchanged until a person restores or removes it: no token is silently revoked or restored.
    pub fn open(home: &Home) -> Self {
        let mut file = Self { path: home.root().join("tokens.json"), tokens: vec![], damage: None };
        file.reread();
        file
    }

    /// Why the file cannot be read, and what to do; `None` if it can. Reads a damaged file again first.
    pub fn damage(&mut self) -> Option<String> {
        if self.damage.is_some() {
            self.reread();
        }
        let why = self.damage.as_ref()?;
        Some(format!(
            "{} cannot be read ({why}): no token is accepted until you restore it, or remove it and create new tokens",
            self.path.display()
        ))
    }

    fn reread(&mut self) {
        match Self::read(&self.path) {
            Ok(tokens) => (self.tokens, self.damage) = (tokens, None),
            Err(error) => (self.tokens, self.damage) = (vec![], Some(error.to_string())),
        }
    }

    fn check(&mut self) -> io::Result<()> {
        self.damage().map_or(Ok(()), |damage| Err(io::Error::other(damage)))
    }

    fn read(path: &Path) -> io::Result<Vec<KeptToken>> {
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            Err(error) => return Err(error),
        };
        let content: Content = serde_json::from_slice(&text).map_err(io::Error::other)?;
        if content.format != TOKENS_FORMAT {
            return Err(io::Error::other(format!(
                "it has format {}, this pinfold supports {TOKENS_FORMAT}",
                content.format
            )));
        }
        Ok(content.tokens)
    }

    pub fn tokens(&self) -> &[KeptToken] {
        &self.tokens
    }

    /// Adds a token; it is stored when this returns.
    pub fn add(&mut self, token: KeptToken) -> io::Result<()> {
        self.check()?;
        self.tokens.push(token);
        self.write().inspect_err(|_| drop(self.tokens.pop()))
    }

    /// Removes a token and returns it.
    pub fn remove(&mut self, id: &str) -> io::Result<Option<KeptToken>> {
        self.check()?;
        let Some(index) = self.tokens.iter().position(|token| token.id == id) else { return Ok(None) };
        let token = self.tokens.remove(index);
        match self.write() {
            Ok(()) => Ok(Some(token)),
            Err(error) => {
                self.tokens.insert(index, token);
                Err(error)
            }
        }
    }

    /// Writes the file again, into a home that was created again.
    pub fn rewrite(&self) -> io::Result<()> {
        if self.damage.is_some() || self.tokens.is_empty() { Ok(()) } else { self.write() }
    }

    fn write(&self) -> io::Result<()> {
        let content = Content { format: TOKENS_FORMAT, tokens: self.tokens.clone() };
        replace_file(&self.path, &serde_json::to_vec_pretty(&content).map_err(io::Error::other)?, Durability::Power)
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
        let mut file = TokenFile::open(&home);
        file.add(token("a")).expect("added");
        file.add(token("b")).expect("added");
        assert_eq!(mode_of(&home.root().join("tokens.json")), 0o600);
        let mut file = TokenFile::open(&home);
        assert_eq!(file.tokens(), [token("a"), token("b")]);
        assert_eq!(file.remove("a").expect("removed"), Some(token("a")));
        assert_eq!(file.remove("a").expect("removed"), None);
        assert_eq!(TokenFile::open(&home).tokens(), [token("b")]);
    }

    #[test]
    fn an_unreadable_file_grants_nothing_and_is_not_replaced() {
        let home = Scratch::home();
        for text in ["", "{", r#"{"format":9,"tokens":[]}"#] {
            std::fs::write(home.root().join("tokens.json"), text).expect("written");
            let mut file = TokenFile::open(&home);
            assert!(file.tokens().is_empty() && file.damage().is_some_and(|why| why.contains("restore")), "{text}");
            assert!(file.add(token("a")).is_err() && file.remove("a").is_err());
            assert_eq!(std::fs::read_to_string(home.root().join("tokens.json")).expect("read"), text);
            std::fs::remove_file(home.root().join("tokens.json")).expect("removed");
            file.add(token("a")).expect("usable again without a restart");
            assert_eq!(file.damage(), None);
        }
    }

    #[test]
    fn two_tokens_differ() {
        let (one, other) = (random_token().expect("random"), random_token().expect("random"));
        assert_ne!(one, other);
        assert_eq!(one.len(), "pinfold_".len() + 64);
    }
}
