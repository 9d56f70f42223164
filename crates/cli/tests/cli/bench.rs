//! The harness that compares Drumlin with others is alive: its own tests pass, and a small run with three peers gives a result
//! in which everything went well, and a report of it.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const PEERS: [&str; 3] = ["tar", "rsync", "restic"];

fn bench() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench")).canonicalize().unwrap()
}

/// Runs a program of Python's that must succeed; what it said.
fn python(arguments: &[&str]) -> String {
    let output = Command::new("python3")
        .arg("-B")
        .args(arguments)
        .current_dir(bench())
        .env("DRUMLIN", env!("CARGO_BIN_EXE_drumlin"))
        .output()
        .expect("python3 is there");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "python3 {arguments:?}: {}\n{said}", output.status);
    said
}

/// Whether a program is on the PATH.
fn there(program: &str) -> bool {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(|folder| folder.join(program).is_file())
}

#[test]
fn the_harness_passes_its_own_tests() {
    let said = python(&["-m", "unittest", "discover", "-s", "tests", "-t", "."]);
    assert!(said.contains("\nOK"), "{said}");
}

/// A hundredth of W1, and of W1's peers those that the machine has: `./test` sees to it that it has all three.
#[test]
fn a_small_run_beside_three_peers_and_its_report() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let peers: Vec<&str> = PEERS.into_iter().filter(|peer| there(peer)).collect();
    if peers.len() < PEERS.len() {
        eprintln!("only {peers:?} of {PEERS:?} are here");
    }
    let tools = format!("drumlin,{}", peers.join(","));
    let (work, results, docs) = (at("work"), at("results"), at("docs"));
    let small = ["run", "W1", "--scale", "0.01", "--repeat", "1", "--settle", "0.1", "--folder"];
    python(&[&small[..], &["--tools", &tools, "--work", &work, "--results", &results]].concat());
    python(&["report", "--results", &results, "--to", &docs]);

    let file = fs::read_dir(&results).unwrap().next().unwrap().unwrap().path();
    let result: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let rounds = result["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), peers.len() + 1);
    for round in rounds {
        for (part, count) in [("steps", 3), ("restores", 1)] {
            let steps = round[part].as_object().unwrap();
            assert_eq!(steps.len(), count, "{round}");
            for (name, step) in steps {
                assert_eq!(step["status"], "ok", "{} {name}: {step}", round["tool"]);
                assert!(step["wall"].as_f64().unwrap() > 0.0 && step["memory"].as_u64().unwrap() > 0, "{step}");
            }
            let check = &round["restores"]["a day's mail"]["check"];
            assert!(check["wrong"] == 0 && check["entries"].as_u64().unwrap() > 1500, "{round}");
        }
    }
    let page = fs::read_to_string(Path::new(&docs).join("W1-scale-0.01-hot.md")).unwrap();
    for tool in tools.split(',') {
        assert!(page.contains(tool), "{tool} is not in the report:\n{page}");
    }
    assert!(Path::new(&docs).join("charts/W1-scale-0.01-hot-backup-first.svg").is_file());
}
