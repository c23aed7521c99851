//! docs/map.md: every source file (crates and their tests, dashboard, SDKs) with the first paragraph
//! of its header, by folder.
//!
//! A reader who knows what they are looking for, and not what it is called here, searches that page.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What is listed after the crates.
const OTHER_ROOTS: [&str; 3] = ["dashboard/src", "sdk/python/src", "sdk/typescript/src"];

/// The page.
pub fn render(root: &Path) -> io::Result<String> {
    let mut page = String::from(
        "# Map of the source\n\nEvery source file and what it is for: the first paragraph of its header. Written by `cargo xtask generate`. \
         [ARCHITECTURE.md](../ARCHITECTURE.md) describes how they fit together. Tests, the dashboard's \
         page and the SDKs come last.\n",
    );
    let crates = entries(&root.join("crates"))?;
    let mut roots: Vec<_> =
        ["src", "tests"].iter().flat_map(|part| crates.iter().map(move |path| path.join(part))).collect();
    roots.extend(OTHER_ROOTS.map(|path| root.join(path)));
    for directory in roots.iter().filter(|path| path.is_dir()) {
        let mut files = Vec::new();
        collect(directory, &mut files)?;
        let mut folders: BTreeMap<PathBuf, Vec<(String, String)>> = BTreeMap::new();
        for file in files {
            let relative = file.strip_prefix(root).unwrap_or(&file).to_owned();
            let name = relative.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let folder = relative.parent().unwrap_or(Path::new("")).to_owned();
            let paragraph = first_paragraph(&fs::read_to_string(&file)?);
            if !paragraph.is_empty() {
                folders.entry(folder).or_default().push((name, paragraph));
            }
        }
        for (folder, files) in folders {
            page.push_str(&format!("\n## {}\n\n", folder.display()));
            for (name, paragraph) in files {
                page.push_str(&format!("- `{name}`: {paragraph}\n"));
            }
        }
    }
    Ok(page)
}

/// The source files below a folder, in order, without those that only have tests.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for path in entries(folder)? {
        if path.is_dir() {
            collect(&path, files)?;
        } else if path
            .extension()
            .is_some_and(|extension| ["rs", "ts", "tsx", "py"].iter().any(|known| extension == *known))
            && !path.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("tests"))
        {
            files.push(path);
        }
    }
    Ok(())
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths =
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

const DOCSTRING: &str = "\"\"\"";

/// The first paragraph of the header, on one line: of `//!` or `//` comments, or of a Python docstring.
fn first_paragraph(source: &str) -> String {
    let mut lines = source.lines().skip_while(|line| line.starts_with('#')).peekable();
    if lines.peek().is_some_and(|line| line.starts_with(DOCSTRING)) {
        let text = source.split(DOCSTRING).nth(1).unwrap_or_default();
        return text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    }
    let header = lines.map_while(|line| line.strip_prefix("//!").or_else(|| line.strip_prefix("//"))).map(str::trim);
    header.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_paragraph_of_a_header_may_have_several_lines() {
        assert_eq!(first_paragraph("//! Reads a file,\n//! and more.\n//!\n//! That.\n"), "Reads a file, and more.");
        assert_eq!(first_paragraph("//! `a.b` is it\n\nuse x;\n"), "`a.b` is it");
        assert_eq!(first_paragraph("// A page.\n\nimport x;\n"), "A page.");
        assert_eq!(first_paragraph("use x;\n"), "");
        assert_eq!(first_paragraph("# Generated.\n\"\"\"One\nline.\n\nMore.\n\"\"\"\n"), "One line.");
        assert_eq!(first_paragraph("\"\"\"All.\"\"\"\n\nimport x\n"), "All.");
    }
}
