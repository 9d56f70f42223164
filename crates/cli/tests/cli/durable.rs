//! In which order the program has what it writes made durable, as `strace` sees it: the bytes of a file before its
//! name, and what an object speaks of before the object (docs/format.md, docs/collection.md); a key's file before
//! anything depends on it; and all of it before the program ends.

use crate::home::{Home, Ran};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What writes, names, removes and syncs; with a `?` what some machines lack.
const CALLS: &str = "trace=openat,?mkdir,mkdirat,?link,linkat,?rename,?renameat,renameat2,?unlink,unlinkat,?rmdir,\
                     write,pwrite64,writev,pwritev,ftruncate,fallocate,fsync,fdatasync";

/// What an object speaks of, or rests on, by their folders: no crash may leave it without these.
fn before(folder: &str) -> &'static [&'static str] {
    match folder {
        "config" => &["keys"],
        "data" | "tree" => &["config", "keys", "sessions"],
        "index" => &["sessions", "data", "tree"],
        "snapshots" => &["sessions", "data", "tree", "index"],
        "decisions" => &["sessions", "data", "tree", "index", "snapshots", "plans"],
        _ => &[],
    }
}

/// What has to be gone for good before something in a folder goes: it would speak of what is not there, or count anew.
fn gone_before(folder: &str) -> &'static [&'static str] {
    match folder {
        "data" | "tree" => &["index"],
        "plans" | "sessions" => &["index", "data", "tree"],
        "decisions" => &["sessions"],
        _ => &[],
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Written,
    Made,
    Removed,
}

/// A run, as far as it has come: what a crash could take away at this moment, and what was wrong so far.
struct Run<'a> {
    /// Where it runs.
    at: PathBuf,
    repository: PathBuf,
    /// A file that has to be durable before anything in this folder of the repository has its name, or, if that is
    /// empty, the repository itself; and in any case when the run has ended.
    secret: Option<(&'a Path, &'a str)>,
    /// What was not synced since, and when it was done.
    unsynced: BTreeMap<(Change, PathBuf), usize>,
    /// Where names were given.
    named: BTreeSet<String>,
    wrong: Vec<String>,
}

impl Run<'_> {
    /// The folder of the repository that an object is in, or the object's name at the top; of one that has no name yet
    /// there is none.
    fn folder<'p>(&self, path: &'p Path) -> Option<&'p str> {
        // It is made beside its place, by a longer name.
        let name = path.to_str()?.strip_prefix(self.repository.to_str()?)?.split_once('/')?.1;
        let folder = name.split('/').next()?;
        (!name.starts_with("tmp/")).then_some(folder)
    }

    /// Changes that were not synced since.
    fn open(&self, of: impl Fn(Change, &Path) -> bool) -> Vec<String> {
        self.unsynced.keys().filter(|(c, p)| of(*c, p)).map(|(c, p)| format!("{} ({c:?})", p.display())).collect()
    }

    /// The bytes of a file, or its name, or a name on the way to it.
    fn open_to(&self, file: &Path) -> Vec<String> {
        self.open(|change, path| match change {
            Change::Written => path == file,
            Change::Made => file.starts_with(path),
            Change::Removed => false,
        })
    }

    fn refuse(&mut self, what: &str, path: &Path, open: Vec<String>) {
        if !open.is_empty() {
            self.wrong.push(format!("{what} {} before these were durable: {open:?}", path.display()));
        }
    }

    fn begins(&mut self, call: &str, names: &[PathBuf]) {
        match (call, names) {
            ("link" | "linkat" | "rename" | "renameat" | "renameat2", [from, to]) => {
                let folder = if *to == self.repository { Some("") } else { self.folder(to) };
                let Some(folder) = folder else { return };
                self.named.insert(folder.to_owned());
                let is_in_it = |path: &Path| path.starts_with(from) && path != from;
                let is_first = |path: &Path| self.folder(path).is_some_and(|f| before(folder).contains(&f));
                let mut open = self.open(|change, path| match change {
                    Change::Written => path.starts_with(from),
                    Change::Made => is_in_it(path) || is_first(path),
                    Change::Removed => false,
                });
                open.extend(
                    self.secret.filter(|(_, of)| *of == folder).iter().flat_map(|(file, _)| self.open_to(file)),
                );
                self.refuse("named", to, open);
            }
            // What takes its place, or says that it goes, is there.
            ("unlink" | "unlinkat" | "rmdir", [gone]) => {
                let folder = self.folder(gone);
                if folder.is_none() && gone.extension().is_none_or(|extension| extension != "key") {
                    return;
                }
                let first = folder.map_or(&[][..], gone_before);
                let open = self.open(|change, path| match (change, self.folder(path)) {
                    (Change::Made, of) => of.is_some(),
                    (Change::Removed, Some(of)) => first.contains(&of),
                    _ => false,
                });
                self.refuse("removed", gone, open);
            }
            _ => {}
        }
    }

    /// It has succeeded.
    fn ends(&mut self, call: &str, text: &str, names: &[PathBuf], begun: usize, now: usize) {
        let change = match (call, names) {
            ("write" | "pwrite64" | "writev" | "pwritev" | "ftruncate" | "fallocate", _) => {
                (Change::Written, descriptor(text))
            }
            ("openat", [made]) if text.contains("O_EXCL") => (Change::Made, made.clone()),
            ("mkdir" | "mkdirat", [made]) | ("link" | "linkat", [_, made]) => (Change::Made, made.clone()),
            ("rename" | "renameat" | "renameat2", [from, to]) => {
                self.unsynced.retain(|(_, path), _| !path.starts_with(from));
                (Change::Made, to.clone())
            }
            ("unlink" | "unlinkat" | "rmdir", [gone]) => {
                self.unsynced.retain(|(_, path), _| path != gone);
                (Change::Removed, gone.clone())
            }
            ("fsync" | "fdatasync", _) => {
                let synced = descriptor(text);
                self.unsynced.retain(|(change, path), done| {
                    let covered = if *change == Change::Written { Some(&**path) } else { path.parent() };
                    covered != Some(&synced) || *done > begun
                });
                return;
            }
            _ => return,
        };
        self.unsynced.insert(change, now);
    }

    /// What has to be durable when it has ended.
    fn over(&mut self) {
        let repository = self.repository.clone();
        let kept = self.open(|c, p| c != Change::Removed && (self.folder(p).is_some() || repository.starts_with(p)));
        self.refuse("ended with", &repository, kept);
        if let Some((file, _)) = self.secret {
            self.refuse("ended with", file, self.open_to(file));
        }
    }

    fn follow(&mut self, trace: &str) {
        // What is under way, by thread.
        let mut begun = HashMap::new();
        for (now, line) in trace.lines().enumerate() {
            let (thread, line) = line.split_once(' ').unwrap();
            let line = line.trim_start();
            let (text, since) = if let Some(end) = line.strip_prefix("<... ") {
                let (text, since): (String, _) = begun.remove(thread).unwrap();
                (text + end.split_once("resumed>").unwrap().1, since)
            } else if let Some(start) = line.strip_suffix(" <unfinished ...>") {
                let (call, names) = self.parse(start);
                self.begins(call, &names);
                begun.insert(thread, (start.to_owned(), now));
                continue;
            } else if line.starts_with(['+', '-']) {
                continue;
            } else {
                let (call, names) = self.parse(line);
                self.begins(call, &names);
                (line.to_owned(), now)
            };
            let (call, names) = self.parse(&text);
            let (_, result) = text.rsplit_once(" = ").unwrap();
            // There are file systems whose folders can't be synced: more than to ask can't be done.
            let asked = call == "fsync" && ["EINVAL", "ENOSYS", "EOPNOTSUPP"].iter().any(|e| result.contains(e));
            if !result.starts_with(['-', '?']) || asked {
                self.ends(call, &text, &names, since, now);
            }
        }
    }

    /// The call, and the paths of the names that it is given: each below the descriptor before it, or where the program
    /// runs.
    fn parse<'t>(&self, text: &'t str) -> (&'t str, Vec<PathBuf>) {
        let (call, arguments) = text.split_once('(').unwrap();
        let (mut names, mut below) = (Vec::new(), self.at.clone());
        for argument in arguments.split(", ") {
            if let Some(name) = argument.strip_prefix('"') {
                names.push(below.join(name.split('"').next().unwrap()));
            } else if argument.contains('<') {
                below = descriptor(argument);
            }
        }
        (call, names)
    }
}

/// The path of the first descriptor.
fn descriptor(text: &str) -> PathBuf {
    text.split(['<', '>']).nth(1).unwrap_or_default().into()
}

/// `None` where nobody may be watched.
fn watched() -> Option<Home> {
    let tried = Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).output();
    let why = match tried {
        Ok(tried) if tried.status.success() => return Some(Home::new()),
        Ok(tried) => String::from_utf8_lossy(&tried.stderr).into_owned(),
        Err(e) => e.to_string(),
    };
    assert!(std::env::var_os("DRUMLIN_SERVERS").is_none(), "strace can't be used here: {why}");
    eprintln!("skipped: strace can't be used here: {why}");
    None
}

fn run(home: &Home, args: &[&str]) -> (Ran, String) {
    let trace = home.text("trace");
    let ran = home.run_by("strace", &["-f", "-y", "-s", "0", "-o", &trace, "-e", CALLS], args).ok();
    (ran, std::fs::read_to_string(trace).unwrap())
}

/// Hold what was seen against the order, and see names given in these folders.
#[track_caller]
fn in_order(home: &Home, trace: &str, repository: &Path, secret: Option<(&Path, &str)>, named: &[&str]) {
    let (unsynced, wrong) = Default::default();
    let (at, repository) = (home.path(""), repository.to_owned());
    let mut run = Run { at, repository, secret, unsynced, named: BTreeSet::new(), wrong };
    run.follow(trace);
    run.over();
    assert!(run.wrong.is_empty(), "{:#?}", run.wrong);
    assert!(named.iter().all(|folder| run.named.contains(*folder)), "names were given in {:?} alone", run.named);
}

/// A volume that has no room for it may say so when it is synced, and no earlier.
#[test]
fn a_dump_that_does_not_come_to_rest_has_failed() {
    let Some(home) = watched() else { return };
    home.write("src/image", [&[0; 100_000][..], &[7; 50_000], &[0; 100_000]].concat());
    home.run(&["backup", "src"]).ok();
    let file = home.text("src/image");
    let dump = |inject: &str| {
        let script = format!("exec strace -f -o /dev/null {inject} \"$0\" \"$@\" > out");
        home.run_by("sh", &["-c", &script], &["dump", "latest", &file])
    };
    dump("-e trace=none").ok();
    assert!(std::fs::read(home.path("out")).unwrap() == std::fs::read(home.path("src/image")).unwrap());
    for error in ["ENOSPC", "EIO"] {
        let failed = dump(&format!("-e inject=fsync,fdatasync:error={error}")).expect(1);
        assert!(
            failed.stderr.contains("cannot write the dump") && failed.stderr.contains("of no use"),
            "{}",
            failed.stderr
        );
    }
    // What can't be synced at all is another matter, and a pipe isn't asked.
    dump("-e inject=fsync,fdatasync:error=EINVAL").ok();
    home.run_by(
        "strace",
        &["-f", "-o", "/dev/null", "-e", "inject=fsync,fdatasync:error=EIO"],
        &["dump", "latest", &file],
    )
    .ok();
}

#[test]
fn what_is_saved_and_removed_is_durable_in_order() {
    let Some(home) = watched() else { return };
    let repository = home.repository();
    home.sources();
    home.run(&["init"]).ok();
    let does = |args: &[&str], named: &[&str]| in_order(&home, &run(&home, args).1, &repository, None, named);
    let of_a_backup = ["sessions", "data", "tree", "index", "snapshots", "decisions"];
    does(&["backup", "src"], &of_a_backup);
    for n in 0..10 {
        home.write(&format!("src/more/{n}"), drumlin_testkit::Rng::new(n).bytes(100_000));
    }
    does(&["backup", "src"], &of_a_backup);
    home.write("src/a.txt", "another alpha\n");
    std::fs::remove_dir_all(home.path("src/more")).unwrap();
    does(&["backup", "src"], &of_a_backup);
    does(&["forget", "--keep-last", "1"], &["forgotten", "history"]);
    does(&["prune", "--wait", "0", "--max-unused", "0%"], &["sessions", "index", "plans", "decisions", "history"]);
}

#[test]
fn a_key_s_file_is_durable_before_anything_depends_on_it() {
    let Some(home) = watched() else { return };
    let repository = home.repository();
    // There is no repository in its place without a key to it.
    let (_, trace) = run(&home, &["init"]);
    in_order(&home, &trace, &repository, Some((&home.kept_key(), "")), &["keys", "config", ""]);
    // What opened it so far opens it until the new file is safe, and the old one goes last.
    let passwd = |old: &[&str], new: &str| {
        let (_, trace) = run(&home, &[old, &["key", "passwd", "--new-key-file", new]].concat());
        in_order(&home, &trace, &repository, Some((&home.path(new), "keys")), &["keys"]);
    };
    passwd(&[], "new.key");
    assert!(std::fs::read_dir(home.path("config/drumlin/keys")).unwrap().next().is_none());
    std::fs::create_dir(home.path("safe")).unwrap();
    passwd(&["-k", "new.key"], "safe/newer.key");
    // When the command has ended, it can be relied on.
    let key = home.path("reader.key");
    let (_, trace) =
        run(&home, &["-k", "safe/newer.key", "key", "add", "--role", "reader", "--new-key-file", "reader.key"]);
    in_order(&home, &trace, &repository, Some((&key, "none")), &["keys"]);
    let exported = home.path("recovery");
    let (_, trace) = run(&home, &["-k", "reader.key", "key", "export", "recovery"]);
    in_order(&home, &trace, &repository, Some((&exported, "none")), &[]);
    let key = home.path("safe/named.key");
    let (_, trace) = run(&home, &["-r", "named", "-k", "safe/named.key", "init"]);
    in_order(&home, &trace, &home.path("named"), Some((&key, "config")), &["keys", "config"]);
}
