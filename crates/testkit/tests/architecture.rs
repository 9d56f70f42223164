//! The manifests hold to the edges that ARCHITECTURE.md allows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The table below `## Allowed edges`.
fn allowed() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let section = text.split("## Allowed edges").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter(|l| l.starts_with("| ") && !l.starts_with("| crate"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let uses = cells[2].split(',').map(str::trim).filter(|u| !u.is_empty()).map(str::to_owned).collect();
        (cells[1].to_owned(), uses)
    })
    .collect()
}

/// Our crates among the dependencies of a section of a manifest.
fn uses(manifest: &str, section: &str) -> BTreeSet<String> {
    let mut inside = false;
    let mut found = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.trim() == section;
        } else if inside && let Some(rest) = line.strip_prefix("drumlin-") {
            found.insert(rest.split(['.', ' ', '=']).next().unwrap().to_owned());
        }
    }
    found
}

#[test]
fn crates_depend_only_on_what_the_map_allows() {
    let allowed = allowed();
    let mut seen = BTreeSet::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let manifest = fs::read_to_string(entry.path().join("Cargo.toml")).unwrap();
        let may = allowed.get(&name).unwrap_or_else(|| panic!("{name} is not in ARCHITECTURE.md"));
        let uses_now = uses(&manifest, "[dependencies]");
        assert_eq!(&uses_now, may, "what {name} uses, and what it may");
        let mut for_tests = may.clone();
        for_tests.insert("testkit".into());
        if name == "engine" {
            for_tests.insert("store".into());
        }
        let uses_in_tests = uses(&manifest, "[dev-dependencies]");
        assert!(uses_in_tests.is_subset(&for_tests), "the tests of {name} use {uses_in_tests:?}");
        seen.insert(name);
    }
    assert_eq!(seen, allowed.keys().cloned().collect(), "the map names crates that are not there");
}

#[test]
fn pure_crates_touch_nothing_of_the_outside() {
    let forbidden = ["std::fs", "std::net", "std::thread", "SystemTime", "Instant::now", "getrandom", "std::env"];
    for name in ["format", "chunk", "seal"] {
        for file in sources(&root().join("crates").join(name).join("src")) {
            let text = fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            for word in forbidden {
                assert!(!code.contains(word), "{} names {word}", file.display());
            }
        }
    }
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found
}
