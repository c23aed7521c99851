//! Documents that are generated from the code: the lifecycle table, the OpenAPI document and the map of the source.
//!
//! Owns the list of documents and their paths. The crates produce the content; this only writes it.

use std::io;
use std::path::{Path, PathBuf};

/// Whether documents are written or only compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Write,
    Check,
}

/// A document and its generated content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Relative to the workspace root.
    pub path: PathBuf,
    pub text: String,
}

/// Every generated document.
pub fn documents() -> Vec<Document> {
    let openapi = pinfold_api::openapi::document();
    vec![
        Document {
            path: "docs/lifecycle.md".into(),
            text: one_newline_at_the_end(pinfold_model::lifecycle_table::render_markdown()),
        },
        Document { path: "docs/openapi.json".into(), text: one_newline_at_the_end(format!("{openapi:#}")) },
        Document { path: "docs/map.md".into(), text: one_newline_at_the_end(source_map()) },
    ]
}

/// The map, or the reason why the sources could not be read.
fn source_map() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    crate::source_map::render(&root).unwrap_or_else(|error| format!("the sources cannot be read: {error}"))
}

/// Writes or compares all documents; returns those that were out of date.
pub fn run(root: &Path, mode: Mode) -> io::Result<Vec<PathBuf>> {
    let mut stale = Vec::new();
    for document in documents() {
        if is_current(root, &document)? {
            continue;
        }
        if mode == Mode::Write {
            let path = root.join(&document.path);
            path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            std::fs::write(path, &document.text)?;
        }
        stale.push(document.path);
    }
    Ok(stale)
}

fn is_current(root: &Path, document: &Document) -> io::Result<bool> {
    match std::fs::read_to_string(root.join(&document.path)) {
        Ok(text) => Ok(text == document.text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn one_newline_at_the_end(text: String) -> String {
    format!("{}\n", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_stale_until_written_and_again_when_edited() {
        let root = std::env::temp_dir().join(format!("pinfold-generate-{}", std::process::id()));
        let all: Vec<PathBuf> = documents().into_iter().map(|document| document.path).collect();
        assert_eq!(run(&root, Mode::Check).expect("compared"), all);
        assert_eq!(run(&root, Mode::Write).expect("written"), all);
        assert_eq!(run(&root, Mode::Check).expect("compared"), Vec::<PathBuf>::new());
        std::fs::write(root.join(&all[0]), "edited by hand\n").expect("edited");
        assert_eq!(run(&root, Mode::Check).expect("compared"), all[..1]);
        std::fs::remove_dir_all(&root).expect("removed");
    }

    #[test]
    fn documents_end_with_one_newline_and_the_api_is_json() {
        for document in documents() {
            assert!(document.text.ends_with('\n') && !document.text.ends_with("\n\n"), "{}", document.path.display());
            if document.path.extension().is_some_and(|end| end == "json") {
                let value: serde_json::Value = serde_json::from_str(&document.text).expect("JSON");
                assert!(value["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")));
            }
        }
    }
}
