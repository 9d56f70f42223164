//! What the documents point at is there: files that they link to, sources and tests that they name.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).canonicalize().unwrap()
}

/// The pages that people write, and those that the benchmarks make.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md"), root().join("ARCHITECTURE.md")];
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => pages.extend(path.extension().is_some_and(|of| of == "md").then_some(path)),
            }
        }
    }
    pages
}

/// What stands between `open` and the next `close`, wherever that is.
fn between<'a>(text: &'a str, open: &'a str, close: char) -> impl Iterator<Item = &'a str> {
    text.split(open).skip(1).filter_map(move |rest| rest.split_once(close).map(|(inside, _)| inside))
}

#[test]
fn links_lead_somewhere() {
    let mut dead = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for link in between(&text, "](", ')') {
            let target = link.split('#').next().unwrap();
            if !target.is_empty() && !target.contains("://") && !page.parent().unwrap().join(target).exists() {
                dead.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(dead.is_empty(), "{dead:#?}");
}

/// Sources are named from `crates/` on, or from the root.
fn source(path: &str) -> Option<PathBuf> {
    [root().join("crates").join(path), root().join(path)].into_iter().find(|at| at.exists())
}

#[test]
fn sources_and_tests_that_are_named_are_there() {
    let (mut lost, mut met) = (Vec::new(), BTreeSet::new());
    for page in ["ARCHITECTURE.md", "docs/laws.md", "docs/testing.md"] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        for line in text.lines().filter(|line| line.starts_with('|')) {
            for named in line.split('`').skip(1).step_by(2) {
                let (path, test) = named.split_once(": ").unwrap_or((named, ""));
                let path = path.strip_prefix("crates/").unwrap_or(path);
                let crates = ["chunk/", "cli/", "engine/", "format/", "host/", "repo/", "seal/", "store/", "testkit/"];
                if !crates.iter().any(|of| path.starts_with(of)) || path.contains([' ', '*', '{', '<']) {
                    continue;
                }
                met.insert(path.to_owned());
                match source(path) {
                    None => lost.push(format!("{page}: {path}")),
                    Some(at) if !test.is_empty() => {
                        if !fs::read_to_string(&at).is_ok_and(|text| text.contains(&format!("fn {test}("))) {
                            lost.push(format!("{page}: no {test} in {path}"));
                        }
                    }
                    Some(_) => {}
                }
            }
        }
    }
    assert!(lost.is_empty(), "{lost:#?}");
    assert!(met.len() > 30, "the tables are read: {met:?}");
}
