use super::*;
use crate::list::fixture::{Fixture, LINK};
use crate::monitor::Quiet;
use drumlin_store::{Put, Store};
use drumlin_testkit::{Rng, compare, tree};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

fn path_of(path: &Path) -> TreePath {
    TreePath::parse(path.as_os_str().as_bytes()).unwrap()
}

fn options(source: &Path) -> Options {
    Options { path: path_of(source), relative_to: path_of(source), workers: 2 }
}

fn archive(fixture: &Fixture, options: &Options, format: Format, monitor: &Quiet) -> (Vec<u8>, Report) {
    let mut out = Vec::new();
    let report = dump_archive(&fixture.reader(), fixture.root(), options, format, monitor, &mut out).unwrap();
    (out, report)
}

/// Files of all sizes, among them one with holes and one with two names.
fn sample() -> (TempDir, Fixture) {
    let source = tempfile::tempdir().unwrap();
    let mut rng = Rng::new(7);
    for (name, bytes) in [("empty", 0), ("small", 100), ("middle", 300_000), ("large", 9_000_000)] {
        fs::write(source.path().join(name), rng.bytes(bytes)).unwrap();
    }
    let holes = fs::File::create(source.path().join("holes")).unwrap();
    holes.set_len(5_000_000).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&holes, &rng.bytes(100_000), 2 << 20).unwrap();
    fs::create_dir(source.path().join("dir")).unwrap();
    for n in 0..300 {
        fs::write(source.path().join(format!("dir/text{n}")), rng.text(n * 20)).unwrap();
    }
    fs::hard_link(source.path().join("middle"), source.path().join("dir/middle too")).unwrap();
    std::os::unix::fs::symlink("../small", source.path().join("dir/link")).unwrap();
    let mut fixture = Fixture::new();
    fixture.backup(source.path());
    (source, fixture)
}

#[test]
fn files_come_out_as_they_were() {
    let (source, fixture) = sample();
    for name in ["empty", "small", "middle", "large", "holes", "dir/text299", "dir/middle too"] {
        let file = source.path().join(name);
        let mut out = Vec::new();
        let report =
            dump_file(&fixture.reader(), fixture.root(), &path_of(&file), 3, &Quiet::default(), &mut out).unwrap();
        assert!(out == fs::read(&file).unwrap(), "{name}");
        assert_eq!((report.files, report.bytes), (1, out.len() as u64));
    }
    for name in ["dir", "dir/link", "none"] {
        let path = path_of(&source.path().join(name));
        assert!(dump_file(&fixture.reader(), fixture.root(), &path, 1, &Quiet::default(), &mut io::sink()).is_err());
    }
}

#[test]
fn each_block_is_read_once() {
    let (source, fixture) = sample();
    let path = path_of(&source.path().join("large"));
    let reads = fixture.reads("data/", |reader| {
        dump_file(reader, fixture.root(), &path, 2, &Quiet::default(), &mut io::sink()).unwrap();
    });
    // Nine blocks of random data and their neighbours, and the table.
    assert!(reads <= 16, "{reads} reads");
}

/// GNU tar, if it is there.
fn extract_tar(bytes: &[u8], into: &Path) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("archive.tar");
    fs::write(&file, bytes).unwrap();
    let tar = Command::new("tar")
        .args(["--xattrs", "--xattrs-include=*", "--numeric-owner", "-xpf"])
        .arg(&file)
        .arg("-C")
        .arg(into)
        .output();
    let Ok(output) = tar else { return false };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}

#[test]
fn tar_gives_back_a_tree_of_everything() {
    let source = tempfile::tempdir().unwrap();
    tree::random(source.path(), 3, 800).unwrap();
    let long = source.path().join("n".repeat(200)).join("m".repeat(120));
    fs::create_dir_all(&long).unwrap();
    fs::write(long.join("deep"), b"down").unwrap();
    std::os::unix::fs::symlink("t".repeat(300), long.join("far")).unwrap();
    let old = fs::File::create(source.path().join("old")).unwrap();
    old.set_modified(std::time::UNIX_EPOCH - std::time::Duration::new(100, 250_000_000)).unwrap();
    let mut fixture = Fixture::new();
    fixture.backup(source.path());
    let (bytes, report) = archive(&fixture, &options(source.path()), Format::Tar, &Quiet::default());
    assert_eq!((bytes.len() % 10_240, report.damaged, report.skipped), (0, 0, 0));
    let target = tempfile::tempdir().unwrap();
    if extract_tar(&bytes, target.path()) {
        same(source.path(), target.path());
    }
}

#[test]
fn tar_gives_back_the_nasty_tree() {
    if !rustix::process::geteuid().is_root() {
        // Some of it is closed to its owner, and to an ordinary user's tar.
        println!("tar_gives_back_the_nasty_tree: passed over, it needs root");
        return;
    }
    let source = tempfile::tempdir().unwrap();
    tree::nasty(source.path(), false).unwrap();
    // A terabyte of zeros; a path that tar itself can't extract; what tar has no place for.
    fs::remove_dir_all(source.path().join("sparse")).unwrap();
    tree::remove(&source.path().join("dir-deep")).unwrap();
    let mut fixture = Fixture::new();
    fixture.backup(source.path());
    let (bytes, report) = archive(&fixture, &options(source.path()), Format::Tar, &Quiet::default());
    assert_eq!((report.damaged, report.skipped), (0, 1));
    fs::remove_file(source.path().join("nodes/socket")).unwrap();
    let nodes = fs::File::open(source.path().join("nodes")).unwrap();
    let target = tempfile::tempdir().unwrap();
    if extract_tar(&bytes, target.path()) {
        nodes.set_modified(fs::metadata(target.path().join("nodes")).unwrap().modified().unwrap()).unwrap();
        same(source.path(), target.path());
    }
}

/// The root itself is not in the archive, and tar keeps no inode flags.
fn same(source: &Path, target: &Path) {
    let options = compare::Options { roots: false, flags: false, ..compare::Options::default() };
    compare::assert_same(source, target, &options);
}

#[test]
fn zip_gives_back_files_and_links() {
    let (source, fixture) = sample();
    let (bytes, report) = archive(&fixture, &options(source.path()), Format::Zip, &Quiet::default());
    assert_eq!((report.damaged, report.skipped, report.files), (0, 0, 306));
    let target = tempfile::tempdir().unwrap();
    let file = target.path().join("archive.zip");
    fs::write(&file, &bytes).unwrap();
    let script = "import sys, zipfile, os, stat\n\
        z = zipfile.ZipFile(sys.argv[1]); assert z.testzip() is None\n\
        for i in z.infolist():\n\
        \x20 mode = i.external_attr >> 16; there = os.path.join(sys.argv[2], i.filename)\n\
        \x20 s = os.lstat(there); assert mode == s.st_mode, i\n\
        \x20 want = os.readlink(there).encode() if stat.S_ISLNK(mode) else b'' if i.is_dir() else open(there, 'rb').read()\n\
        \x20 assert z.read(i) == want, i\n\
        print(len(z.infolist()))";
    let python = Command::new("python3").args(["-c", script]).arg(&file).arg(source.path()).output();
    if let Ok(output) = python {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), report.entries.to_string());
    }
}

#[test]
fn a_damaged_file_is_told_and_the_archive_stays_whole() {
    let (source, fixture) = sample();
    let mut packs = Vec::new();
    fixture.store.list("data", &mut |listed| packs.push(listed.name)).unwrap();
    for pack in &packs {
        let mut bytes = fixture.store.get(pack).unwrap();
        drumlin_testkit::wipe_parity(&mut bytes);
        // The large file has nine parts of ten, and not any one place of its own: each repository cuts elsewhere.
        let quarter = bytes.len() / 4;
        [1, 2, 3].iter().for_each(|part| bytes[quarter * part] ^= 1);
        fixture.store.put(pack, &bytes, Put::Replace).unwrap();
    }
    let monitor = Quiet::default();
    let (bytes, report) = archive(&fixture, &options(source.path()), Format::Tar, &monitor);
    assert!(report.damaged > 0);
    assert_eq!(report.damaged, monitor.counters().get().damaged);
    assert_eq!(report.damaged as usize, monitor.problems().len());
    let target = tempfile::tempdir().unwrap();
    if extract_tar(&bytes, target.path()) {
        let bad: Vec<_> = monitor.problems().into_iter().map(|p| p.path).collect();
        for name in ["empty", "small", "middle", "large", "holes", "dir/text1", "dir/text250"] {
            let (was, is) = (source.path().join(name), target.path().join(name));
            let told = bad.contains(&was.as_os_str().as_bytes().to_vec());
            assert_eq!(fs::metadata(&was).unwrap().len(), fs::metadata(&is).unwrap().len());
            assert_eq!(fs::read(&was).unwrap() != fs::read(&is).unwrap(), told, "{name}");
        }
    }
    let large = path_of(&source.path().join("large"));
    let single = dump_file(&fixture.reader(), fixture.root(), &large, 2, &Quiet::default(), &mut io::sink());
    assert!(matches!(single, Err(Error::Repo(e)) if e.is_damage()));
}

/// An empty file would pass for one that was empty.
#[test]
fn a_file_that_was_never_read_is_told_and_left_out() {
    let mut fixture = Fixture::new();
    fixture.write(&[("dir/unread", 5), ("dir/too", 0)]);
    let options = Options { path: TreePath::root(), relative_to: TreePath::root(), workers: 2 };
    for format in [Format::Tar, Format::Zip] {
        let monitor = Quiet::default();
        let (_, report) = archive(&fixture, &options, format, &monitor);
        assert_eq!((report.files, report.damaged, monitor.counters().get().damaged), (0, 2, 2));
        assert!(monitor.problems().iter().all(|p| p.cause.contains("could not be read")), "{:?}", monitor.problems());
    }
    let (monitor, path) = (Quiet::default(), TreePath::parse(b"/dir/unread").unwrap());
    dump_file(&fixture.reader(), fixture.root(), &path, 1, &monitor, &mut io::sink()).unwrap();
    assert_eq!(monitor.counters().get().damaged, 1);
}

/// An entry with the metadata of a file that was backed up.
fn item_of(fixture: &Fixture, reader: &Arc<Reader>, path: &Path) -> Item {
    Item {
        path: b"/x".to_vec(),
        name: b"x".to_vec(),
        meta: find_entry(reader, fixture.root(), &path_of(path), |entry| Ok(*entry.meta())).unwrap(),
        target: Vec::new(),
        xattrs: Xattrs::default(),
        user: Vec::new(),
        group: Vec::new(),
        link: None,
    }
}

#[test]
fn a_list_that_is_not_the_file_is_noticed() {
    let (source, fixture) = sample();
    // The same chunks under another whole identity.
    let reader = fixture.reader();
    let mut archive = Raw(Vec::new());
    let monitor = Quiet::default();
    let mut sink = Sink::new(&mut archive, &reader, &monitor, true);
    let item = item_of(&fixture, &reader, &source.path().join("small"));
    sink.begin(&item, true).unwrap();
    sink.chunk(Ok(&[1; 100]), 100).unwrap();
    assert!(sink.end(Some([0; 32])).is_err());
}

/// What comes behind a chunk of the wrong length stays where it was.
#[test]
fn zeros_stand_for_a_chunk_that_is_not_as_long_as_the_file_says() {
    let (source, fixture) = sample();
    let (reader, monitor) = (fixture.reader(), Quiet::default());
    let mut archive = Raw(Vec::new());
    let mut sink = Sink::new(&mut archive, &reader, &monitor, false);
    let mut item = item_of(&fixture, &reader, &source.path().join("small"));
    item.meta.size = 300;
    sink.begin(&item, true).unwrap();
    sink.chunk(Ok(&[1; 90]), 100).unwrap();
    sink.chunk(Ok(&[2; 200]), 200).unwrap();
    sink.end(Some([0; 32])).unwrap();
    assert_eq!(sink.report.damaged, 1);
    assert!(archive.0 == [vec![0; 100], vec![2; 200]].concat());
}

#[test]
fn a_reader_that_goes_away_ends_it() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            if self.0 > 1 << 20 { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(bytes.len()) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (source, fixture) = sample();
    let reader = fixture.reader();
    for format in [Format::Tar, Format::Zip] {
        let options = options(source.path());
        let monitor = Quiet::default();
        let result = dump_archive(&reader, fixture.root(), &options, format, &monitor, &mut Full(0));
        assert!(matches!(result, Err(Error::System { source, .. }) if source.kind() == io::ErrorKind::BrokenPipe));
    }
}

/// Whoever unpacks it would write where the link leads.
#[test]
fn nothing_below_a_symbolic_link_is_given_out() {
    use crate::list::fixture::LINK;
    let mut fixture = Fixture::new();
    fixture.write(&[("/a/dir/x", 1), ("/b/dir/x", 1), ("/a", LINK)]);
    let root = TreePath::root();
    let options = Options { path: root.clone(), relative_to: root, workers: 2 };
    let monitor = Quiet::default();
    let (bytes, report) = archive(&fixture, &options, Format::Tar, &monitor);
    let has = |name: &[u8]| bytes.chunks(512).any(|block| block.starts_with(name));
    assert!(has(b"b/dir") && has(b"a\0") && !has(b"a/"));
    let told: Vec<String> = monitor.problems().into_iter().map(|problem| format!("{problem:?}")).collect();
    assert!(told.iter().any(|told| told.contains("below a symbolic link")), "{told:?} {report:?}");
}

/// The number of a file may have been used again while the backup ran, and where all times are the same nothing but
/// what is in them tells two apart.
#[test]
fn files_of_one_number_and_other_contents_are_no_links() {
    let mut fixture = Fixture::new();
    fixture.write_as(&[("a", LINK), ("b", LINK), ("c", LINK)], |name, meta, content| {
        (meta.nlink, meta.ino, meta.size, meta.mtime.nsec) = (2, 7, 5, 1);
        content.target = if name == b"b" { b"there".to_vec() } else { b"aside".to_vec() };
    });
    let root = Options { path: TreePath::root(), relative_to: TreePath::root(), workers: 2 };
    let (bytes, _) = archive(&fixture, &root, Format::Tar, &Quiet::default());
    let target = tempfile::tempdir().unwrap();
    if !extract_tar(&bytes, target.path()) {
        return;
    }
    let led = ["a", "b", "c"].map(|name| fs::read_link(target.path().join(name)).unwrap());
    assert_eq!(led.map(|path| path.to_str().unwrap().to_owned()), ["aside", "there", "aside"]);
}
