//! The harness that compares Drumlin with others is alive: its own tests pass, and a small run with three peers gives a
//! result in which everything went well, and a report of it.

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

/// The harness's own tests, in parts that go side by side: most of them wait for something.
const PARTS: [&[&str]; 3] =
    [&["test_rounds"], &["test_far", "test_servers"], &["test_measure", "test_ground", "test_sweep"]];

fn own_tests(modules: &[&str]) {
    let modules: Vec<String> = modules.iter().map(|module| format!("tests.{module}")).collect();
    let args: Vec<&str> = ["-m", "unittest"].into_iter().chain(modules.iter().map(String::as_str)).collect();
    let said = python(&args);
    assert!(said.contains("\nOK"), "{said}");
}

#[test]
fn the_harness_makes_rounds() {
    own_tests(PARTS[0]);
}

#[test]
fn the_harness_reaches_far() {
    own_tests(PARTS[1]);
}

#[test]
fn the_harness_measures() {
    own_tests(PARTS[2]);
}

/// All that is in none of the other parts.
#[test]
fn the_harness_passes_its_other_tests() {
    let folder = bench().join("tests");
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let all: Vec<String> = names
        .filter_map(|name| name.strip_suffix(".py").map(str::to_owned))
        .filter(|name| name.starts_with("test_"))
        .collect();
    for named in PARTS.concat() {
        assert!(all.iter().any(|name| name == named), "{named} is not there");
    }
    let others: Vec<&str> = all.iter().map(String::as_str).filter(|name| !PARTS.concat().contains(name)).collect();
    assert!(others.len() >= 3, "{others:?}");
    own_tests(&others);
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
                assert!(step["wall"].as_f64().unwrap() > 0.0, "{step}");
                // What is over before anybody has looked has none.
                assert!(step["memory"].is_null() || step["memory"].as_u64() > Some(0), "{step}");
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

/// What is measured apart, on next to nothing: each keeps a table as data, and the report makes a page of it.
#[test]
fn what_is_measured_apart_is_kept_and_told() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for n in 0..8 {
        fs::create_dir_all(at(&format!("tree/{n}"))).unwrap();
        fs::write(at(&format!("tree/{n}/file")), format!("{n}").repeat(10_000)).unwrap();
    }
    let results = at("results");
    let own = format!("{results}/own");
    for (name, args) in [
        ("large", vec!["--gib", "0.01", "--repeat", "1"]),
        ("many", vec!["--files", "600"]),
        ("keep", vec!["--tools", "drumlin", "--repeat", "1"]),
    ] {
        let work = at(&format!("work-{name}"));
        fs::create_dir(&work).unwrap();
        let tree = at("tree");
        let places = if name == "keep" { vec![&*tree, &*work] } else { vec![&*work] };
        python(&[&[name], &places[..], &args[..], &["--results", &own]].concat());
    }
    let docs = at("docs");
    python(&["report", "--results", &results, "--to", &docs]);
    let list = fs::read_to_string(format!("{docs}/results.md")).unwrap();
    for (page, row, column) in [
        ("large", "| drumlin |", 2),
        ("many-600", "| backup of half |", 2),
        ("keep", "| forget and prune, drumlin |", 2),
        ("keep", "| the last three states alone, drumlin |", 5),
    ] {
        assert!(list.contains(&format!("({page}.md)")), "{list}");
        let text = fs::read_to_string(format!("{docs}/{page}.md")).unwrap();
        let row = text.lines().find(|line| line.starts_with(row)).unwrap_or_else(|| panic!("{text}"));
        assert!(!row.split('|').nth(column).unwrap_or("–").contains("–"), "it has failed: {text}");
        let says_how =
            text.contains("drumlin, forget and prune: `drumlin -q forget --group-by host --keep-last 3 --prune`");
        assert_eq!(says_how, page == "keep", "{text}");
    }
}
