//! Whole trees copied through the restoring side and compared by the second opinion.

use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use drumlin_testkit::{compare, tree};
use rustix::fd::AsFd;

use super::super::apply::Wanted;
use super::super::handle::Handle;
use super::super::{BigFile, FileId, Problem, Target, TargetDir, What};
use super::*;
use crate::meta::{FLAGS_KEPT, Kind, Stat};

/// Copies trees and collects what could not be given back.
#[derive(Default)]
struct Copy {
    links: HashMap<FileId, (Arc<TargetDir>, Vec<u8>)>,
    problems: Vec<(Vec<u8>, Problem)>,
    /// Sparse files and those above 64 KiB go through `BigFile`.
    big: usize,
    /// Directories are opened by their paths below it, as restores do, so that what is learned of one is taken for true
    /// of others; else each by its name.
    target: Option<Target>,
    /// Where it is.
    path: Vec<u8>,
}

impl Copy {
    fn dir(&mut self, from: &TargetDir, to: &Arc<TargetDir>) {
        for name in from.list().expect("listed").iter() {
            let stat = from.stat(name).expect("looked at").expect("there");
            let extras = extras(from, name, &stat);
            let wanted = Wanted::of(&stat, &extras);
            if stat.nlink > 1 && stat.kind != Kind::Dir {
                let id = FileId::of(&stat);
                if let Some((dir, first)) = self.links.get(&id) {
                    let first_id = FileId::of(&dir.stat(first).expect("looked at").expect("restored"));
                    to.hard_link(name, dir, first, Some(first_id)).expect("linked");
                    continue;
                }
                self.links.insert(id, (Arc::clone(to), name.to_vec()));
            }
            let problems = match stat.kind {
                Kind::Dir => {
                    let before = self.path.len();
                    let sub = self.enter(to, name, &wanted);
                    self.dir(&from.open_dir(name).expect("opened"), &sub);
                    let sub = self.target.as_ref().map_or(sub, |t| t.dir(&self.path).expect("opened"));
                    self.path.truncate(before);
                    sub.finish_dir(&wanted).expect("finished")
                }
                Kind::File => self.file(from, to, name, &stat, &wanted),
                Kind::Symlink => to.symlink(name, &wanted).expect("made"),
                kind => to.mknod(name, kind, stat.rdev, &wanted).expect("made"),
            };
            self.problems.extend(problems.into_iter().map(|p| (name.to_vec(), p)));
        }
    }

    fn enter(&mut self, to: &Arc<TargetDir>, name: &[u8], wanted: &Wanted<'_>) -> Arc<TargetDir> {
        let Some(target) = &self.target else { return to.make_dir(name).expect("made") };
        to.create_dir(name, wanted.extras.flags).expect("made");
        self.path.extend_from_slice(if self.path.is_empty() { b"" } else { b"/" });
        self.path.extend_from_slice(name);
        target.dir(&self.path).expect("opened")
    }

    fn file(
        &mut self,
        from: &TargetDir,
        to: &Arc<TargetDir>,
        name: &[u8],
        stat: &Stat,
        wanted: &Wanted<'_>,
    ) -> Vec<Problem> {
        let (source, _) = from.open_existing(name).expect("opened");
        let sparse = stat.blocks * 512 < stat.size;
        if !sparse && stat.size <= 64 << 10 {
            let mut data = vec![0; stat.size as usize];
            source.read_exact_at(&mut data, 0).expect("read");
            return to.place_file(name, &data, wanted).expect("placed");
        }
        self.big += 1;
        let file = to.create_file(name).expect("created");
        let mut big = BigFile::new(&file, stat.size, sparse).expect("begun");
        let mut buffer = vec![0; 100_000];
        let mut at = 0;
        while at < stat.size {
            let data = rustix::fs::seek(&source, rustix::fs::SeekFrom::Data(at)).unwrap_or(stat.size).min(stat.size);
            big.skip(data - at).expect("skipped");
            at = data;
            let hole = rustix::fs::seek(&source, rustix::fs::SeekFrom::Hole(at)).unwrap_or(stat.size);
            while at < hole {
                let n = buffer.len().min((hole - at) as usize);
                source.read_exact_at(&mut buffer[..n], at).expect("read");
                big.write(&buffer[..n]).expect("written");
                at += n as u64;
            }
        }
        assert_eq!(big.finish().expect("ended"), stat.size);
        file.finish(wanted).expect("finished")
    }
}

fn extras(dir: &TargetDir, name: &[u8], stat: &Stat) -> Extras {
    let (fd, _) = dir.pin(name).expect("held");
    let handle = Handle::path(fd.as_fd());
    let mut extras = Extras::default();
    for name in handle.xattr_names().expect("listed").split(|&b| b == 0).filter(|n| !n.is_empty()) {
        extras.xattrs.push((name.to_vec(), handle.xattr(name).expect("read").expect("there")));
    }
    extras.xattrs.sort();
    if matches!(stat.kind, Kind::File | Kind::Dir) {
        extras.flags = handle.flags().ok().flatten().unwrap_or(0) & FLAGS_KEPT;
    }
    if stat.kind == Kind::Symlink {
        extras.target = dir.read_link(name).expect("read");
    }
    extras
}

fn copy(from: &Path, to: &Path) -> Copy {
    let (from, target) = (open(from), Target::open(to, true).expect("the target opens"));
    assert!(target.is_new());
    let to = Arc::clone(target.root());
    let mut copy = Copy { target: Some(target), ..Copy::default() };
    copy.dir(&from, &to);
    let wanted = from.stat_self().expect("looked at");
    let problems = to.finish_dir(&Wanted::of(&wanted, &NO_EXTRAS)).expect("finished");
    assert_eq!(problems, vec![]);
    copy
}

#[test]
fn everything_there_is_as_root() {
    let Some(fs) = loop_fs() else { return };
    let (a, b) = (fs.dir("a").expect("made"), fs.dir("b").expect("made"));
    assert!(tree::nasty(&a, true).expect("made").is_empty());
    let done = copy(&a, &b);
    assert_eq!(done.problems, vec![], "root may do it all");
    assert!(done.big >= 10);
    rustix::fs::sync();
    compare::assert_same(&a, &b, &compare::Options { holes: Some(65_536), ..Default::default() });
    tree::remove(&a).expect("removed");
    tree::remove(&b).expect("removed");
}

/// Entries must not take over what their directory would hand on: ACLs, flags, groups.
#[test]
fn everything_below_a_directory_that_hands_on() {
    let Some(fs) = loop_fs() else { return };
    let (a, b) = (fs.dir("a").expect("made"), fs.dir("b").expect("made"));
    assert!(tree::nasty(&a, true).expect("made").is_empty());
    let default_acl: Vec<u8> = [2u32, 0x7_0001, !0, 0x7_0002, 1234, 0x7_0004, !0, 0x7_0010, !0, 0x7_0020, !0]
        .iter()
        .flat_map(|w| w.to_le_bytes())
        .collect();
    let target = open(&b);
    let handle = Handle::open(target.fd());
    handle.set_xattr(b"system.posix_acl_default", &default_acl).expect("set");
    handle.set_flags(handle.flags().expect("read").expect("kept") | 0x40 | 0x80).expect("set");
    handle.chown(None, Some(rustix::process::Gid::from_raw(777))).expect("given");
    handle.chmod(0o2777).expect("set");
    drop(target);
    std::fs::write(b.join("witness"), b"").expect("written");
    assert!(open(&b).pin(b"witness").is_ok_and(|(fd, stat)| {
        stat.gid == 777
            && Handle::path(fd.as_fd()).xattr_names().is_ok_and(|n| n.starts_with(b"system.posix_acl_access"))
    }));
    std::fs::remove_file(b.join("witness")).expect("removed");
    let done = copy(&a, &b);
    assert_eq!(done.problems, vec![]);
    compare::assert_same(&a, &b, &compare::Options::default());
    tree::remove(&a).expect("removed");
    tree::remove(&b).expect("removed");
}

#[test]
fn everything_as_an_ordinary_user() {
    let Some(fs) = loop_fs() else { return };
    let (a, b) = (fs.dir("a").expect("made"), fs.dir("b").expect("made"));
    assert!(tree::nasty(&a, true).expect("made").is_empty());
    // Root reads, the stranger writes.
    for path in [fs.path(), b.as_path()] {
        std::os::unix::fs::chown(path, Some(STRANGER), Some(STRANGER)).expect("given");
    }
    let source = open(&a);
    // What a stranger may not read is left out of this one.
    for (dir, name) in [("modes", "0000"), ("modes", "0200"), ("modes", "0111"), ("modes", "0400"), ("modes", "6711")] {
        let _ = source.open_dir(dir.as_bytes()).expect("opened").remove(name.as_bytes());
    }
    source.open_dir(b"modes").expect("opened").remove_tree(b"dir-0700").expect("removed");
    for name in ["acl", "acl-dir"] {
        source.open_dir(b"attributes").expect("opened").remove_tree(name.as_bytes()).expect("removed");
    }
    let done = as_stranger(|| {
        let (from, to) = (open(&a), open(&b));
        let mut copy = Copy::default();
        copy.dir(&from, &to);
        copy
    });
    let has = |name: &str, what: &What| done.problems.iter().any(|(n, p)| n == name.as_bytes() && p.what == *what);
    assert!(has("other", &What::Owner) && has("other", &What::Group));
    assert!(has("null", &What::Node) && has("loop", &What::Node));
    assert!(has("capability", &What::Xattr(b"security.capability".as_slice().into())));
    assert!(has("immutable", &What::Flags(0x10)) && has("append", &What::Flags(0x20)));
    assert!(has("suid-other", &What::Mode) && has("4755", &What::Mode));
    assert!(done.problems.iter().all(|(_, p)| p.is_denied()), "nothing but refusals: {:?}", done.problems);
    // The rest is complete.
    let found = compare::trees(&a, &b, &compare::Options { owner: false, roots: false, ..Default::default() })
        .expect("compared");
    for d in found {
        let path = String::from_utf8_lossy(&d.path);
        let expected = match &d.what {
            compare::What::Presence => ["nodes/null", "nodes/big-minor", "nodes/loop"].contains(&&*path),
            compare::What::Xattr(name) => name.starts_with(b"security.") || name.starts_with(b"trusted."),
            compare::What::Flags => path.starts_with("flags/"),
            compare::What::Mode => {
                path.ends_with("755") || path.contains("suid") || path.contains("2775") || path.contains("foreign")
            }
            _ => false,
        };
        assert!(expected, "{d}");
    }
    let suid = open(&b).open_dir(b"owners").expect("opened").stat(b"suid-other").expect("looked at").expect("there");
    assert_eq!((suid.mode, suid.uid), (0o755, STRANGER), "not a door into the stranger's account");
    tree::remove(&a).expect("removed");
}

#[test]
fn random_trees_without_being_root() {
    let home = tempfile::tempdir().expect("made");
    for seed in 0..5 {
        let (a, b) = (home.path().join(format!("a{seed}")), home.path().join(format!("b{seed}")));
        std::fs::create_dir(&a).expect("made");
        tree::random(&a, seed, 200).expect("made");
        let done = copy(&a, &b);
        assert_eq!(done.problems, vec![]);
        compare::assert_same(&a, &b, &compare::Options::default());
    }
}

/// Flags that count on empty inodes only are set before anything is in them: and what is in such a directory has them,
/// too, so that what was learned elsewhere is true no more.
#[test]
fn directories_with_flags_of_their_own_hand_them_on() {
    const COMPRESSED: u32 = 0x4;
    let Some(fs) = loop_fs() else { return };
    let home = fs.dir("target").expect("made");
    let target = Target::open(&home, false).expect("opened");
    let flags = |dir: &TargetDir, name: &[u8]| {
        let (fd, _) = dir.pin(name).expect("held");
        Handle::path(fd.as_fd()).flags().expect("read").expect("kept") & FLAGS_KEPT
    };
    let root = target.root();
    root.create_dir(b"plain", 0).expect("made");
    let plain_dir = target.dir(b"plain").expect("opened");
    assert_eq!(plain_dir.place_file(b"first", b"x", &plain(0o644)).expect("placed"), vec![]);
    assert!(target.is_new());
    root.create_dir(b"flagged", COMPRESSED).expect("made");
    assert_eq!(flags(root, b"flagged"), COMPRESSED);
    assert!(!target.is_new(), "not all are alike any more");
    let flagged = target.dir(b"flagged").expect("opened");
    for (dir, name) in [(&flagged, b"file"), (&plain_dir, b"next")] {
        assert_eq!(dir.place_file(name, b"x", &plain(0o644)).expect("placed"), vec![]);
        assert_eq!(flags(dir, name), 0, "what the file shall have, and not what it was given");
    }
    assert_eq!(flagged.finish_dir(&plain(0o755)).expect("finished"), vec![]);
    assert_eq!(flags(root, b"flagged"), 0);
}

#[test]
fn what_has_taken_a_name_meanwhile_is_not_replaced_by_what_is_new() {
    let home = tempfile::tempdir().expect("made");
    let dir = open(home.path());
    for (name, there) in [(b"free", false), (b"gone", true)] {
        let file = dir.create_temp().expect("created");
        file.write_at(0, b"restored").expect("written");
        if there {
            std::fs::write(home.path().join("gone"), b"a user's").expect("written");
        }
        let committed = file.commit_new(name, &plain(0o644));
        assert_eq!(committed.is_err_and(|e| e.is_exists()), there);
    }
    assert_eq!(std::fs::read(home.path().join("free")).expect("read"), b"restored");
    assert_eq!(std::fs::read(home.path().join("gone")).expect("read"), b"a user's");
    assert_eq!(dir.list().expect("listed").len(), 2, "nothing else is left");
}

#[test]
fn the_target_is_made_if_asked() {
    let home = tempfile::tempdir().expect("made");
    let path = home.path().join("not/yet/there");
    assert!(Target::open(&path, false).is_err_and(|e| e.is_missing()));
    let target = Target::open(&path, true).expect("made");
    target.root().place_file(b"x", b"1", &plain(0o644)).expect("placed");
    target.root().make_dir(b"d").expect("made").make_dir(b"e").expect("made");
    assert!(target.dir(b"d/e").expect("opened").list().expect("listed").is_empty());
    assert!(target.dir(b"").expect("opened").list().expect("listed").contains(b"d"));
    assert!(target.dir(b"d/f").is_err_and(|e| e.is_missing()));
    target.sync().expect("synced");
}
