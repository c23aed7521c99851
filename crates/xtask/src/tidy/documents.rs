//! Documents that come from the code stand in the tree as the code would write them.

use super::{Finding, Tree};
use crate::generate::{self, Mode};

/// Every generated document is current.
pub(crate) fn generated_documents_are_current(tree: &Tree) -> Vec<Finding> {
    match generate::run(&tree.root, Mode::Check) {
        Ok(stale) => {
            stale.into_iter().map(|path| Finding::new(path, 1, "not current: run `cargo xtask generate`")).collect()
        }
        Err(error) => vec![Finding::new("docs", 1, format!("cannot be compared: {error}"))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_document_is_found() {
        let root = std::env::temp_dir().join("pinfold-tidy-no-such-root");
        let findings = generated_documents_are_current(&Tree { root, ..Tree::default() });
        assert_eq!(findings.len(), generate::documents().len());
        assert!(findings[0].message.contains("cargo xtask generate"));
    }
}
