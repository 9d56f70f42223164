//! A golden repository that has been through something, as the program left it: `tests/golden/v1-mended`. Parity in
//! packs and across them; a pack that was lost beyond it, so that a loss stands; one that has lost a sector since; what
//! was forgotten and pruned, by signed entries; a session that was evicted, and a prune that was killed while its plan
//! stood.
//!
//! Never edited or made anew: see [`super`]. `source/` is the latest state of what was saved.

use super::{copy, golden, killed_prune, sums};
use crate::home::{Home, Ran, signal};
use crate::interrupt::wait_for;
use drumlin_testkit::{Rng, parity_of};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;

const NAME: &str = "v1-mended";

/// A copy of it, and what is known of it.
struct Mended {
    home: Home,
    expected: Value,
}

impl Mended {
    fn load() -> Self {
        let (home, from) = (Home::new(), golden(NAME));
        let expected = serde_json::from_slice(&fs::read(from.join("expected.json")).unwrap()).unwrap();
        copy(&from.join("repository"), &home.repository());
        fs::copy(from.join("key-file.txt"), home.path("key")).unwrap();
        Mended { home, expected }
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.home.run(&[&["--key-file", &self.home.text("key")], args].concat())
    }

    /// The same, of who has all sessions evicted that he meets.
    fn over_all(&self, args: &[&str]) -> Ran {
        let sessions = fs::read_dir(self.home.repository().join("sessions")).into_iter().flatten();
        let sessions: Vec<String> = sessions.map(|s| s.unwrap().file_name().into_string().unwrap()).collect();
        let evict = sessions.iter().flat_map(|session| ["--evict", session]);
        self.run(&args.iter().copied().chain(["--wait", "0"]).chain(evict).collect::<Vec<_>>())
    }

    /// All snapshots are listed, and give back what they gave back when it was made; `healed`: what was saved.
    #[track_caller]
    fn comes_back(&self, healed: bool) {
        let listed = self.run(&["--json", "snapshots"]).ok().objects();
        for snapshot in self.expected["snapshots"].as_array().unwrap() {
            let id = snapshot["id"].as_str().unwrap();
            assert!(listed.iter().any(|s| s["id"] == id), "{id} is not listed");
            let spec = format!("{id}:{}", self.expected["source"].as_str().unwrap());
            let ran = self.run(&["restore", &spec, "-t", "target"]);
            let (files, code) = if healed { ("saved", 0) } else { ("files", code(snapshot)) };
            assert_eq!(ran.code, Some(code), "{id}: {}", ran.stderr);
            assert_eq!(json!(sums(&self.home.path("target"))), snapshot[files], "{id}");
            fs::remove_dir_all(self.home.path("target")).unwrap();
        }
    }

    /// The objects that a check names.
    fn findings(&self) -> Vec<String> {
        let found = self.run(&["--json", "check", "--read-data"]).of_type("damage");
        let mut objects: Vec<String> = found.iter().map(|f| f["object"].as_str().unwrap().to_owned()).collect();
        objects.sort();
        objects
    }
}

fn code(snapshot: &Value) -> i32 {
    if snapshot["files"] == snapshot["saved"] { 0 } else { 3 }
}

#[test]
fn it_is_as_it_was_made() {
    let (mended, repository) = (Mended::load(), golden(NAME).join("repository"));
    let objects = sums(&repository);
    assert_eq!(json!(objects), mended.expected["objects"], "fetch {NAME} again: it is never edited");
    for folder in
        ["data", "decisions", "forgotten", "history", "index", "losses", "parity", "plans", "sessions", "tree"]
    {
        assert!(objects.keys().any(|name| name.starts_with(folder)), "{folder}");
    }
    let packs = objects.keys().filter(|name| name.starts_with("data/") || name.starts_with("tree/"));
    assert!(
        packs.clone().count() > 4
            && packs.clone().all(|p| !parity_of(&fs::read(repository.join(p)).unwrap()).is_empty())
    );
    let codes: Vec<i32> = mended.expected["snapshots"].as_array().unwrap().iter().map(code).collect();
    assert!(codes.contains(&0) && codes.contains(&3), "{codes:?}");
}

#[test]
fn it_is_read_and_checked() {
    let mended = Mended::load();
    mended.comes_back(false);
    assert_eq!(json!(mended.findings()), mended.expected["findings"]);
    assert_eq!(json!(sums(&mended.home.repository())), mended.expected["objects"], "who reads changes nothing");
}

#[test]
fn it_is_pruned() {
    let mended = Mended::load();
    mended.over_all(&["prune", "--max-unused", "0"]).expect(0);
    mended.over_all(&["prune", "--max-unused", "0"]).expect(0);
    let left = sums(&mended.home.repository());
    assert!(
        !left.keys().any(|name| ["plans/", "sessions/", "forgotten/"].iter().any(|of| name.starts_with(of))),
        "{left:?}"
    );
    assert!(left.keys().any(|name| name.starts_with("losses/")), "what is lost is not forgotten");
    mended.comes_back(false);
}

/// What is lost is stored again by a backup of what it was, and then nothing is missing any more.
#[test]
fn it_is_healed() {
    let mended = Mended::load();
    mended.over_all(&["repair", "--read-data"]).expect(3);
    mended.comes_back(false);
    copy(&golden(NAME).join("source"), &mended.home.path("src"));
    mended.run(&["backup", "--host", "golden", "src"]).expect(0);
    mended.over_all(&["prune", "--max-unused", "0"]).expect(0);
    assert_eq!(mended.findings(), Vec::<String>::new());
    mended.comes_back(true);
    let left = sums(&mended.home.repository());
    assert!(!left.keys().any(|name| name.starts_with("losses/")), "{left:?}");
}

/// The packs of contents, the largest first.
fn packs(home: &Home) -> Vec<(u64, String)> {
    let repository = home.repository();
    let names = sums(&repository).into_keys().filter(|name| name.starts_with("data/"));
    let mut packs: Vec<_> = names.map(|name| (fs::metadata(repository.join(&name)).unwrap().len(), name)).collect();
    packs.sort_by(|a, b| b.cmp(a));
    packs
}

#[test]
#[ignore = "makes a golden repository: once for each version of the format"]
fn make() {
    let to = golden(NAME);
    assert!(!to.exists(), "{} is there, and never made anew", to.display());
    let home = Home::new();
    let (mut rng, mut taken) = (Rng::new(2027), Vec::new());
    let mut backup = |state: usize| {
        for n in (0..6).filter(|n| state == 0 || n % 3 == state % 3) {
            let len = 3000 + rng.below(9_000);
            home.write(&format!("src/dir/{n}"), if n % 2 == 0 { rng.bytes(len) } else { rng.text(len) });
        }
        home.write(&format!("src/state {state}"), rng.bytes(4000));
        let saved = home.run(&["--json", "backup", "--host", "golden", "src"]).expect(0);
        let summary = saved.objects().into_iter().find(|o| o["snapshot_id"].is_string()).unwrap();
        taken.push((summary["snapshot_id"].as_str().unwrap().to_owned(), sums(&home.path("src"))));
    };
    (0..3).for_each(&mut backup);
    home.run(&["parity", "3+1"]).expect(0);
    // A writer that is killed, and evicted by a prune.
    let mut writer = home.start(&["--json", "-v", "backup", "--command", "endless", "--", "cat", "/dev/zero"]);
    wait_for(&mut writer, "status");
    signal(&writer, Signal::KILL);
    writer.wait().unwrap();
    backup(3);
    home.run(&["forget", "latest~3"]).expect(0);
    home.run(&["prune", "--wait", "0", "--max-unused", "0"]).expect(0);
    let before: Vec<_> = packs(&home).into_iter().map(|(_, name)| name).collect();
    backup(4);
    // What only the latest has is lost; no band has it yet.
    for (_, name) in packs(&home).into_iter().filter(|(_, name)| !before.contains(name)) {
        fs::remove_file(home.repository().join(name)).unwrap();
    }
    home.run(&["repair"]).expect(3);
    let forget = |id: &str| home.run(&["forget", id]).expect(0);
    forget(&taken[1].0);
    killed_prune(&home);
    forget(&taken[2].0);
    // And a sector that the pack's own parity makes up for.
    let (_, sector) = packs(&home).remove(0);
    home.tamper(&home.repository().join(sector), |bytes| {
        let at = parity_of(bytes).start / 2;
        bytes[at..at + 512].fill(0);
    });
    let _ = fs::remove_dir_all(home.repository().join("tmp"));
    let objects = sums(&home.repository());
    let snapshots: Vec<Value> = taken[3..]
        .iter()
        .map(|(id, saved)| {
            home.run(&["restore", &format!("{id}:{}", home.text("src")), "-t", "target"]);
            let files: BTreeMap<String, String> = sums(&home.path("target"));
            fs::remove_dir_all(home.path("target")).unwrap();
            json!({ "id": id, "saved": saved, "files": files })
        })
        .collect();
    let found = home.run(&["--json", "check", "--read-data"]).of_type("damage");
    let mut findings: Vec<&str> = found.iter().map(|f| f["object"].as_str().unwrap()).collect();
    findings.sort_unstable();
    let expected =
        json!({ "source": home.text("src"), "snapshots": snapshots, "findings": findings, "objects": objects });
    copy(&home.repository(), &to.join("repository"));
    copy(&home.path("src"), &to.join("source"));
    fs::copy(home.kept_key(), to.join("key-file.txt")).unwrap();
    fs::write(to.join("expected.json"), serde_json::to_string_pretty(&expected).unwrap() + "\n").unwrap();
}
