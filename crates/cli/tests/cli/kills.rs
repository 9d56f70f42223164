//! The real program on the real file system, killed at any moment: what it said is saved comes back whole, and the next
//! run goes on as if nothing had been.

use crate::home::{Home, Ran, signal};
use drumlin_testkit::{Rng, compare};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const KILLS: usize = 50;

/// What is to be killed.
const DEEDS: [&str; 3] = ["backup", "forget", "prune"];

/// A repository with what was saved in it, as the program told.
struct Scene {
    home: Home,
    rng: Rng,
    /// Snapshots that were reported as saved and that nobody began to forget, and a copy of what each is of.
    saved: Vec<(String, PathBuf)>,
    states: usize,
}

impl Scene {
    fn new() -> Self {
        let mut scene = Scene { home: Home::new(), rng: Rng::new(1), saved: Vec::new(), states: 0 };
        (0..3).for_each(|_| {
            scene.change();
            scene.ends(&["--json", "backup", "src"]);
        });
        scene
    }

    /// Another state of the sources: some files are new, some gone, a large one differs in the middle.
    fn change(&mut self) {
        for n in 0..40 {
            let name = format!("src/{}/{n}", n % 4);
            if self.states == 0 || self.rng.one_in(4) {
                let len = self.rng.below(20_000);
                self.home.write(&name, self.rng.bytes(len));
            } else if self.rng.one_in(20) {
                let _ = fs::remove_file(self.home.path(&name));
            }
        }
        let mut large = fs::read(self.home.path("src/large")).unwrap_or_else(|_| self.rng.bytes(600_000));
        let at = self.rng.below(500_000);
        large[at..at + 50_000].copy_from_slice(&self.rng.bytes(50_000));
        self.home.write("src/large", large);
        self.states += 1;
    }

    /// The arguments of a run, and what it will mean.
    fn begin(&mut self, deed: &str) -> Vec<String> {
        let args: Vec<String> = match deed {
            "backup" => {
                self.change();
                ["--json", "backup", "src"].map(Into::into).into()
            }
            "prune" => ["--json", "prune", "--wait", "0", "--max-unused", "0%"].map(Into::into).into(),
            _ => {
                // From here on it may be gone or not.
                let at = self.rng.below(self.saved.len());
                let (id, copy) = self.saved.remove(at);
                fs::remove_dir_all(copy).unwrap();
                vec!["--json".into(), "forget".into(), id]
            }
        };
        args
    }

    /// A run came to its end: what it saved has to come back from now on.
    fn note(&mut self, ran: &Ran) {
        let summary = ran.stdout.lines().find(|line| line.contains("snapshot_id"));
        let Some(id) = summary.and_then(|line| serde_json::from_str::<serde_json::Value>(line).ok()) else { return };
        let copy = self.home.path(&format!("copy{}", self.states));
        let copied = Command::new("cp").arg("-a").arg(self.home.path("src")).arg(&copy).status().unwrap();
        assert!(copied.success());
        self.saved.push((id["snapshot_id"].as_str().unwrap().to_owned(), copy));
    }

    /// A run that nobody disturbs; how long it took.
    fn ends(&mut self, args: &[&str]) -> Duration {
        let start = Instant::now();
        let ran = self.home.run(args).expect(0);
        let took = start.elapsed();
        if args.contains(&"backup") {
            self.note(&ran);
        }
        took
    }

    /// A run that is killed within `time`, unless it is faster. Whether it was killed.
    fn killed(&mut self, deed: &str, time: Duration) -> bool {
        let args = self.begin(deed);
        let mut child = self.home.command(&args);
        let out = self.home.path("out.json");
        let mut child =
            child.stdout(fs::File::create(&out).unwrap()).stderr(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(time.mul_f64(self.rng.below(1000) as f64 / 1000.0));
        signal(&child, Signal::KILL);
        let code = child.wait().unwrap().code();
        if code == Some(0) && deed == "backup" {
            let stdout = fs::read_to_string(out).unwrap();
            self.note(&Ran { code, stdout, stderr: String::new(), bytes: Vec::new() });
        }
        code.is_none()
    }

    /// All that was told to be saved is listed and comes back.
    fn whole(&self) {
        let listed = self.home.run(&["--json", "snapshots"]).ok().objects();
        for (id, copy) in &self.saved {
            assert!(listed.iter().any(|s| s["id"] == **id), "{id} was saved, and is not listed");
            let target = self.home.path("target");
            let folder = format!("{id}:{}", self.home.text("src"));
            self.home.run(&["restore", &folder, "-t", "target"]).ok();
            compare::assert_same(copy, &target, &compare::Options { roots: false, ..Default::default() });
            fs::remove_dir_all(&target).unwrap();
        }
    }

    fn left(&self, folder: &str) -> Vec<PathBuf> {
        files(&self.home.repository().join(folder))
    }
}

/// All files below a folder.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Fifty kills, and what is left at the end.
fn many_kills() -> Scene {
    let mut scene = Scene::new();
    // How long each takes if nobody disturbs it.
    let mut times = Vec::new();
    for deed in DEEDS {
        let args = scene.begin(deed);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        times.push(scene.ends(&args));
    }
    let (mut killed, mut round) = ([0; DEEDS.len()], 0);
    // A run that came to its end before it was to be killed doesn't count.
    while killed.iter().sum::<usize>() < KILLS {
        round += 1;
        assert!(round < 10 * KILLS, "{killed:?}: hardly any is killed under way");
        // Forgetting is over in no time.
        let at = [0, 2, 0, 2, 1][round % 5];
        while scene.saved.len() < 2 {
            scene.change();
            scene.ends(&["--json", "backup", "src"]);
        }
        killed[at] += usize::from(scene.killed(DEEDS[at], times[at]));
        scene.whole();
        scene.change();
        times[0] = (times[0] + scene.ends(&["--json", "backup", "src"])) / 2;
        while scene.saved.len() > 2 {
            let args = scene.begin("forget");
            times[1] = (times[1] + scene.ends(&args.iter().map(String::as_str).collect::<Vec<_>>())) / 2;
        }
        if round % 2 == 0 {
            times[2] = (times[2] + scene.ends(&["prune", "--wait", "0", "--max-unused", "0%"])) / 2;
        }
    }
    println!("{killed:?} of {DEEDS:?} were killed before they came to their end, in {round} rounds");
    assert!(killed[0] > KILLS / 10 && killed[2] > KILLS / 10, "{killed:?}: hardly any of some sort");
    scene
}

#[test]
fn what_was_saved_outlives_any_kill() {
    let mut scene = many_kills();
    // What the last of them left may take one prune to be told and one to be cleared up; each finds something to
    // remove.
    for _ in 0..2 {
        let args = scene.begin("forget");
        scene.ends(&args.iter().map(String::as_str).collect::<Vec<_>>());
        scene.change();
        scene.ends(&["--json", "backup", "src"]);
        scene.ends(&["prune", "--wait", "0", "--max-unused", "0%"]);
    }
    scene.whole();
    for folder in ["sessions", "plans", "tmp"] {
        assert_eq!(scene.left(folder), Vec::<PathBuf>::new(), "{folder}");
    }
}

#[test]
fn no_kill_leaves_an_unfinished_file_for_good() {
    let mut scene = Scene::new();
    for next in ["backup", "prune"] {
        let mut round = 0;
        while scene.left("tmp").is_empty() {
            round += 1;
            assert!(round < 200, "a kill leaves an unfinished file now and then");
            scene.killed("backup", Duration::from_millis(300));
        }
        if next == "backup" {
            scene.ends(&["--json", "backup", "src"]);
        } else {
            let done = scene.home.run(&["--json", "prune", "--wait", "0"]).expect(0).the("prune");
            assert!(done["unfinished_removed"].as_u64() > Some(0), "{done}");
        }
        assert_eq!(scene.left("tmp"), Vec::<PathBuf>::new(), "after a {next}");
    }
    scene.whole();
}
