//! Golden repositories that somebody has lived with, as the program left them: `tests/golden/v1-lived`, `v1-rekeyed`
//! and what may come to stand beside them. What is in them is read, checked, pruned and repaired by today's program, on
//! copies.
//!
//! They are NEVER edited or made anew, whatever fails here. What a later version writes besides gets a folder of its
//! own: `cargo test -p drumlin --test cli -- --ignored golden::make`, with its name in [`NEW`] first and then in
//! [`ALL`].

mod mended;

use crate::home::{Home, Ran, signal};
use drumlin_testkit::Rng;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// The repositories that there are.
const ALL: [&str; 2] = ["v1-lived", "v1-rekeyed"];
/// The one that `make` makes.
const NEW: &str = "v1-rekeyed";

fn golden(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden")).join(name)
}

/// The checksums of all files in a folder, by their paths in it.
fn sums(folder: &Path) -> BTreeMap<String, String> {
    let mut sums = BTreeMap::new();
    let mut todo = vec![folder.to_owned()];
    while let Some(at) = todo.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
            let sum = drumlin_seal::checksum(&fs::read(&path).unwrap());
            sums.insert(name, sum.iter().map(|byte| format!("{byte:02x}")).collect());
        }
    }
    sums
}

fn copy(from: &Path, to: &Path) {
    for name in sums(from).keys() {
        let file = to.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, fs::read(from.join(name)).unwrap()).unwrap();
    }
}

/// A copy of a golden repository, and what is in it.
struct Lived {
    home: Home,
    expected: Value,
}

impl Lived {
    fn load(name: &str) -> Self {
        let (home, from) = (Home::new(), golden(name));
        let expected = serde_json::from_slice(&fs::read(from.join("expected.json")).unwrap()).unwrap();
        copy(&from.join("repository"), &home.repository());
        for key in ["key-file.txt", "writer-key-file.txt"] {
            fs::write(home.path(key), fs::read(from.join(key)).unwrap()).unwrap();
        }
        Lived { home, expected }
    }

    fn with(&self, key: &str, args: &[&str]) -> Ran {
        let key = self.home.text(key);
        self.home.run(&[&["--key-file", &key], args].concat())
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.with("key-file.txt", args)
    }

    fn list(&self, what: &str) -> &Vec<Value> {
        self.expected[what].as_array().unwrap()
    }

    /// A snapshot comes back as it was.
    #[track_caller]
    fn comes_back(&self, id: &str, of: &Value) {
        let target = self.home.path("target");
        let folder = format!("{id}:{}", self.expected["source"].as_str().unwrap());
        self.run(&["restore", &folder, "-t", "target"]).ok();
        assert_eq!(json!(sums(&target)), of["files"], "{id}");
        fs::remove_dir_all(&target).unwrap();
    }

    #[track_caller]
    fn all_come_back(&self) {
        let listed = self.run(&["--json", "snapshots"]).ok().objects();
        for snapshot in self.list("snapshots") {
            assert!(listed.iter().any(|s| s["id"] == snapshot["id"]), "{} is not listed", snapshot["id"]);
            self.comes_back(snapshot["id"].as_str().unwrap(), snapshot);
        }
    }

    #[track_caller]
    fn is_sound(&self) {
        self.run(&["check", "--read-data"]).ok();
    }

    /// A prune that goes on where the one that was killed stood still.
    #[track_caller]
    fn prune(&self) -> Value {
        let sessions = fs::read_dir(self.home.repository().join("sessions")).into_iter().flatten();
        let sessions: Vec<String> = sessions.map(|s| s.unwrap().file_name().into_string().unwrap()).collect();
        let evict = sessions.iter().flat_map(|session| ["--evict", session]);
        let args: Vec<&str> =
            ["--json", "prune", "--wait", "0", "--max-unused", "0%"].into_iter().chain(evict).collect();
        self.run(&args).ok().the("prune")
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let all = sums(&self.home.repository());
        all.into_keys().filter(|name| name.starts_with(folder)).collect()
    }
}

#[test]
fn they_are_as_they_were_made() {
    for name in ALL {
        let lived = Lived::load(name);
        let repository = golden(name).join("repository");
        assert_eq!(json!(sums(&repository)), lived.expected["objects"], "fetch {name} again: it is never edited");
        // It is worth something only with one of everything.
        for folder in ["data/", "tree/", "index/", "snapshots/", "forgotten/", "sessions/", "plans/", "keys/"] {
            assert!(!lived.names(folder).is_empty(), "{folder}");
        }
        assert!(lived.names("keys/").len() == 2 && lived.list("snapshots").len() >= 2);
    }
}

#[test]
fn they_are_read_and_checked() {
    for name in ALL {
        let lived = Lived::load(name);
        lived.all_come_back();
        lived.is_sound();
        let objects = sums(&lived.home.repository());
        assert_eq!(json!(objects), lived.expected["objects"], "who reads changes nothing");
    }
}

#[test]
fn they_are_gone_on_with_and_pruned() {
    for name in ALL {
        let lived = Lived::load(name);
        // Whoever was forgotten can be had back as long as nothing is pruned.
        let forgotten = &lived.list("forgotten")[0];
        let back = lived.run(&["--json", "undelete", forgotten["id"].as_str().unwrap()]).ok().the("undeleted");
        let back = back["id"].as_str().unwrap().to_owned();
        lived.comes_back(&back, forgotten);
        lived.home.write("src/new", Rng::new(9).bytes(20_000));
        lived.with("writer-key-file.txt", &["backup", "--host", "golden", "src"]).ok();
        let done = lived.prune();
        assert!(done["removed"]["packs"].as_u64() > Some(0), "{done}");
        lived.prune();
        for folder in ["plans/", "sessions/"] {
            assert_eq!(lived.names(folder), Vec::<String>::new());
        }
        lived.all_come_back();
        lived.comes_back(&back, forgotten);
        lived.is_sound();
        let gone = lived.list("forgotten")[1]["id"].as_str().unwrap();
        lived.run(&["undelete", gone]).expect(1);
    }
}

#[test]
fn they_are_repaired() {
    for name in ALL {
        // All of the index is lost: it is made anew.
        let lived = Lived::load(name);
        let sessions = lived.names("sessions/");
        let evict: Vec<&str> = sessions.iter().flat_map(|s| ["--evict", s.rsplit('/').next().unwrap()]).collect();
        let repair = |more: &[&str]| lived.run(&[&["--json", "repair", "--wait", "0"], more, &evict].concat());
        lived.names("index/").iter().for_each(|name| fs::remove_file(lived.home.repository().join(name)).unwrap());
        lived.run(&["check"]).expect(1);
        let done = repair(&[]).ok().the("repair");
        assert!(done["packs_named_again"].as_u64() > Some(0), "{done}");
        lived.all_come_back();
        lived.is_sound();
        // A pack of contents is lost: what it costs is told, and the rest comes back.
        let packs = lived.names("data/");
        let size = |name: &&String| fs::metadata(lived.home.repository().join(name)).unwrap().len();
        let largest = packs.iter().max_by_key(size).unwrap();
        fs::remove_file(lived.home.repository().join(largest)).unwrap();
        lived.run(&["check"]).expect(1);
        let done = lived.run(&["--json", "repair", "--wait", "0"]).expect(3).the("repair");
        assert!(done["chunks_lost"].as_u64() > Some(0), "{done}");
        assert!(lived.names("losses/").len() == 1, "{done}");
        lived.prune();
        for snapshot in lived.list("snapshots") {
            let ran = lived.run(&["restore", snapshot["id"].as_str().unwrap(), "-t", "target"]);
            assert!(matches!(ran.code, Some(0 | 3)), "{:?}: {}", ran.code, ran.stderr);
        }
    }
}

/// Keys of before there were generations can't be given new secrets: they are named, and removed if that is wanted.
#[test]
fn they_are_given_new_secrets() {
    for name in ALL {
        let lived = Lived::load(name);
        if lived.names("generations/").is_empty() {
            let before = sums(&lived.home.repository());
            let refused = lived.run(&["key", "rekey"]).expect(1).stderr;
            assert!(refused.contains("'writer'") && refused.contains("--remove-old"), "{refused}");
            assert_eq!(sums(&lived.home.repository()), before);
            lived.run(&["key", "rekey", "--remove-old"]).ok();
            lived.with("writer-key-file.txt", &["key", "list"]).expect(12);
        } else {
            lived.run(&["key", "rekey"]).ok();
        }
        lived.prune();
        lived.all_come_back();
        lived.is_sound();
        let stats = lived.run(&["--json", "stats"]).ok().the("stats");
        let generations = stats["generations"].as_array().unwrap();
        let (newest, older) = generations.split_last().unwrap();
        assert!(newest["packs"].as_u64() > Some(0) && older.iter().all(|of| of["packs"] == 0), "{stats}");
        assert!(older.iter().all(|of| of["snapshots"] == 0 && of["index_objects"] == 0), "{stats}");
    }
}

/// What a prune leaves that is killed while its plan stands.
fn killed_prune(home: &Home) {
    let repository = home.repository();
    let before = home.path("before");
    fs::rename(&repository, &before).unwrap();
    for attempt in 0..400 {
        let _ = fs::remove_dir_all(&repository);
        copy(&before, &repository);
        let mut command = home.command(&["prune", "--wait", "0", "--max-unused", "0%", "--max-rekey", "0"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(10_000 + attempt * 600 % 100_000));
        signal(&child, Signal::KILL);
        child.wait().unwrap();
        let stands = |folder| fs::read_dir(repository.join(folder)).is_ok_and(|mut entries| entries.next().is_some());
        if stands("plans") && stands("sessions") {
            return;
        }
    }
    panic!("no prune was killed while its plan stood");
}

#[test]
#[ignore = "makes a golden repository: once for each version of the format"]
fn make() {
    let to = golden(NEW);
    assert!(!to.exists(), "{} is there, and never made anew", to.display());
    let home = Home::new();
    let (mut rng, mut taken) = (Rng::new(2026), Vec::new());
    for state in 0..5 {
        for n in (0..8).filter(|n| state == 0 || n % 4 == state % 4) {
            let len = 1000 + rng.below(12_000);
            home.write(&format!("src/dir/{n}"), if n % 2 == 0 { rng.bytes(len) } else { rng.text(len) });
        }
        home.write(&format!("src/state {state}"), rng.text(500));
        if state == 4 {
            let added = ["key", "add", "--role", "writer", "--label", "writer", "--new-key-file", "writer.key"];
            home.run(&added).expect(0);
        }
        let key = home.text("writer.key");
        let by: &[&str] = if state == 4 { &["--key-file", &key] } else { &[] };
        let saved =
            home.run(&[by, &["--json", "backup", "--host", "golden", "--tag", "made", "src"]].concat()).expect(0);
        let summary = saved.objects().into_iter().find(|o| o["snapshot_id"].is_string()).unwrap();
        // What is sealed with three generations of secrets, a snapshot and a pack of the first sealed anew with the
        // second.
        if state == 1 || state == 2 {
            home.run(&["key", "rekey"]).expect(0);
        }
        if state == 1 {
            home.run(&["prune", "--max-rekey", "1", "--max-unused", "unlimited"]).expect(0);
        }
        taken.push(json!({ "id": summary["snapshot_id"], "files": sums(&home.path("src")) }));
    }
    let forget = |at: usize| home.run(&["forget", taken[at]["id"].as_str().unwrap()]).expect(0);
    forget(0);
    killed_prune(&home);
    forget(2);
    // What has no name yet is no object, and its file's name is this machine's.
    let _ = fs::remove_dir_all(home.repository().join("tmp"));
    let part = |all: &[usize]| all.iter().map(|at| taken[*at].clone()).collect::<Vec<_>>();
    let expected = json!({
        "source": home.text("src"),
        "snapshots": part(&[1, 3, 4]),
        "forgotten": part(&[2, 0]),
        "objects": sums(&home.repository()),
    });
    copy(&home.repository(), &to.join("repository"));
    fs::copy(home.kept_key(), to.join("key-file.txt")).unwrap();
    fs::copy(home.path("writer.key"), to.join("writer-key-file.txt")).unwrap();
    fs::write(to.join("expected.json"), serde_json::to_string_pretty(&expected).unwrap() + "\n").unwrap();
}
