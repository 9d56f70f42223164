//! The local store on the file systems at hand, with what only a folder can show: modes, links, leftovers, a full or
//! read-only disk.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use super::*;

fn tmp_is_empty(repo: &Path) -> bool {
    fs::read_dir(repo.join(TMP)).map_or(true, |mut entries| entries.next().is_none())
}

/// The suite in folders below `base`; afterwards nothing unfinished is left.
fn conforms_in(base: &Path) {
    let made = Mutex::new(Vec::new());
    crate::conformance::check(|| {
        let mut made = made.lock().unwrap();
        let path = base.join(format!("repo-{}", made.len()));
        made.push(path.clone());
        Box::new(LocalStore::create(path).unwrap())
    });
    let made = made.into_inner().unwrap();
    assert!(made.len() > 5);
    for path in made {
        assert!(tmp_is_empty(&path), "{}", path.display());
    }
}

#[test]
fn conforms() {
    conforms_in(tempfile::tempdir().unwrap().path());
}

#[test]
fn conforms_on_tmpfs() {
    match tempfile::tempdir_in("/dev/shm") {
        Ok(dir) => conforms_in(dir.path()),
        Err(error) => eprintln!("skipped: no tmpfs at /dev/shm: {error}"),
    }
}

fn repo() -> (tempfile::TempDir, PathBuf, LocalStore) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("repo");
    let store = LocalStore::create(&path).unwrap();
    (dir, path, store)
}

fn upload(store: &LocalStore, name: &str, bytes: &[u8]) -> Result<()> {
    let mut upload = store.upload(name, bytes.len() as u64)?;
    upload.write(bytes)?;
    upload.finish()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Run as root, or by another one of a group, it keeps nobody out.
#[test]
fn new_folders_are_those_of_whoever_the_repository_is() {
    use std::os::unix::fs::{MetadataExt, chown};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("repo");
    LocalStore::create(&path).unwrap().put("a/b/object", b"x", Put::Create).unwrap();
    assert_eq!(mode(&path.join("a/b")) & !0o755, 0);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o2770)).unwrap();
    LocalStore::open(&path).unwrap().put("c/d/object", b"x", Put::Create).unwrap();
    for folder in ["c", "c/d"] {
        assert_eq!(mode(&path.join(folder)), 0o2775);
    }
    if !rustix::process::geteuid().is_root() {
        return;
    }
    chown(&path, Some(4321), Some(1234)).unwrap();
    LocalStore::open(&path).unwrap().put("e/f/object", b"x", Put::Create).unwrap();
    for folder in ["e", "e/f"] {
        let of = fs::metadata(path.join(folder)).unwrap();
        assert_eq!((of.uid(), of.gid()), (4321, 1234));
    }
    let object = fs::metadata(path.join("e/f/object")).unwrap();
    assert_eq!((object.uid(), object.gid(), mode(&path.join("e/f/object")) & !0o004), (4321, 1234, 0o440));
}

/// What another process did and was stopped before it made that durable is durable once this one has synced.
#[test]
fn what_was_found_done_is_synced_as_if_this_store_had_done_it() {
    let (_dir, path, store) = repo();
    let other = LocalStore::open(path).unwrap();
    other.put("snapshots/aa", b"one", Put::Create).unwrap();
    other.delete("snapshots/aa").unwrap();
    store.delete("snapshots/aa").unwrap();
    assert!(store.inner.root.is_marked("snapshots"));
    other.put("forgotten/aa", b"one", Put::Create).unwrap();
    assert_eq!(store.put("forgotten/aa", b"one", Put::Create).unwrap_err().kind, Kind::Exists);
    assert!(store.inner.root.is_marked("forgotten"));
    // A folder that isn't there needs nothing.
    store.delete("index/aa").unwrap();
    assert!(!store.inner.root.is_marked("index"));
    store.sync().unwrap();
}

#[test]
fn modes() {
    let (_dir, path, store) = repo();
    store.put("d/a", b"1", Put::Create).unwrap();
    upload(&store, "d/b", b"1").unwrap();
    assert_eq!(mode(&path), 0o700);
    assert_eq!(mode(&path.join("d")) & !0o755, 0);
    for name in ["d/a", "d/b"] {
        let mode = mode(&path.join(name));
        assert!(mode & 0o400 != 0 && mode & !0o444 == 0, "{name}: {mode:o}");
    }
}

#[test]
fn create_and_open() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("repo");
    let opened = |path: &Path| LocalStore::open(path).err().map(|e| (e.kind, e.to_string()));
    let (kind, message) = opened(&path).unwrap();
    assert_eq!(kind, Kind::Missing);
    assert_eq!(message, format!("cannot open {}: No such file or directory", path.display()));
    fs::write(&path, b"file").unwrap();
    let (kind, message) = opened(&path).unwrap();
    assert!(kind == Kind::Io && message.contains("a file, not a folder"), "{message}");
    assert!(LocalStore::create(&path).is_err_and(|e| e.to_string().contains("a file, not a folder")));
    fs::remove_file(&path).unwrap();

    // A mount point is an empty folder that exists.
    fs::create_dir_all(path.join("lost+found")).unwrap();
    LocalStore::create(&path).unwrap();
    LocalStore::create(&path).unwrap();
    fs::write(path.join(".hidden"), b"").unwrap();
    assert_eq!(LocalStore::create(&path).err().map(|e| e.kind), Some(Kind::Exists));
    assert_eq!(opened(&path), None);
    assert_eq!(LocalStore::create(path.join("no/where")).err().map(|e| e.kind), Some(Kind::Missing));
}

#[test]
fn foreign_files_are_not_listed_and_odd_ones_are_errors() {
    let (_dir, path, store) = repo();
    store.put("a", b"1", Put::Create).unwrap();
    let unfinished = store.upload("b", 0).unwrap();
    for name in [".DS_Store", "a b", "ä", "x~"] {
        fs::write(path.join(name), b"foreign").unwrap();
    }
    fs::create_dir(path.join(".git")).unwrap();
    fs::write(path.join(".git/config"), b"foreign").unwrap();
    let list = || {
        let mut names = Vec::new();
        store.list("", &mut |listed| names.push(listed.name)).map(|()| names)
    };
    assert_eq!(list().unwrap(), ["a"]);
    drop(unfinished);

    symlink("a", path.join("link")).unwrap();
    let error = list().unwrap_err();
    assert!(error.kind == Kind::Refused && error.to_string().contains("'link'"), "{error}");
    for error in [store.get("link").unwrap_err(), store.len("link").unwrap_err()] {
        assert!(error.kind == Kind::Refused && error.to_string().contains("symbolic link"), "{error}");
    }
}

#[test]
fn links_lead_nowhere() {
    let (dir, path, store) = repo();
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("x"), b"precious").unwrap();
    symlink(&outside, path.join("packs")).unwrap();
    assert_eq!(store.put("packs/x", b"1", Put::Replace).unwrap_err().kind, Kind::Refused);
    assert_eq!(store.put("packs/y", b"1", Put::Create).unwrap_err().kind, Kind::Refused);
    assert_eq!(store.delete("packs/x").unwrap_err().kind, Kind::Refused);
    assert_eq!(store.get("packs/x").unwrap_err().kind, Kind::Refused);
    assert_eq!(store.list("packs", &mut |_| ()).unwrap_err().kind, Kind::Refused);
    assert_eq!(upload(&store, "packs/z", b"1").unwrap_err().kind, Kind::Refused);
    assert_eq!(fs::read(outside.join("x")).unwrap(), b"precious");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert!(tmp_is_empty(&path));
}

#[test]
fn a_file_where_a_folder_should_be() {
    let (_dir, _path, store) = repo();
    store.put("a", b"1", Put::Create).unwrap();
    for error in [
        store.put("a/b", b"1", Put::Create).unwrap_err(),
        store.get("a/b").unwrap_err(),
        store.list("a", &mut |_| ()).unwrap_err(),
    ] {
        assert!(error.kind == Kind::Io && error.to_string().contains("where a folder should be"), "{error}");
    }
}

#[test]
fn a_repository_that_vanished_is_not_an_empty_one() {
    let (_dir, path, store) = repo();
    store.put("a", b"1", Put::Create).unwrap();
    fs::remove_dir_all(&path).unwrap();
    assert_eq!(store.list("", &mut |_| ()).unwrap_err().kind, Kind::Io);
    assert_eq!(store.list("packs", &mut |_| ()).unwrap_err().kind, Kind::Io);
    assert_eq!(store.len("a").unwrap_err().kind, Kind::Io);
    assert_eq!(store.get("a").unwrap_err().kind, Kind::Io);
}

#[test]
fn a_large_object_that_is_replaced() {
    let (_dir, _path, store) = repo();
    let mut buf = [0; 2];
    for version in 1..4 {
        store.put("big", &vec![version; 9 << 20], Put::Replace).unwrap();
        store.read_at("big", 5 << 20, &mut buf).unwrap();
        assert_eq!(buf, [version; 2]);
    }
}

#[test]
fn an_object_that_shrinks_under_a_reader() {
    let (_dir, path, store) = repo();
    // Large enough to be read without a look at its name.
    upload(&store, "big", &vec![7; 9 << 20]).unwrap();
    store.read_at("big", (9 << 20) - 1, &mut [0]).unwrap();
    fs::set_permissions(path.join("big"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::OpenOptions::new().write(true).open(path.join("big")).unwrap().set_len(1000).unwrap();
    let error = store.read_at("big", 990, &mut [0; 20]).unwrap_err();
    assert_eq!(error.kind, Kind::Truncated);
    assert!(error.to_string().contains("ends after 1000 bytes, and 1010 were expected"), "{error}");
}

/// A file that claims to be longer than the machine's memory is told, and not read.
#[test]
fn an_object_of_any_length() {
    let (_dir, path, store) = repo();
    fs::File::create(path.join("config")).unwrap().set_len(1 << 40).unwrap();
    let error = store.get("config").unwrap_err();
    assert!(error.kind == Kind::Io && error.to_string().contains("longer than any object"), "{error}");
    store.read_at("config", 1 << 39, &mut [0; 20]).unwrap();
}

/// A name in `tmp/` of somebody who is not this process.
fn name_of(ours: &str, change: impl Fn(&mut [String])) -> String {
    let mut fields: Vec<String> = ours.split('-').map(str::to_owned).collect();
    change(&mut fields);
    fields.join("-")
}

#[test]
fn what_dead_processes_left_goes_and_what_the_living_write_stays() {
    let (_dir, path, store) = repo();
    let tmp = path.join(TMP);
    let mut upload = store.upload("a", 0).unwrap();
    upload.write(b"1").unwrap();
    let ours = fs::read_dir(&tmp).unwrap().next().unwrap().unwrap().file_name().into_string().unwrap();
    assert_eq!(store.clear_unfinished().unwrap(), Cleared::default());

    // The same name as a process of this boot that is gone would have made it; and as others would have.
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    let dead = name_of(&ours, |fields| fields[3] = format!("{pid:x}"));
    let restarted = name_of(&ours, |fields| fields[1] = "9".into());
    let elsewhere = name_of(&ours, |fields| (fields[0], fields[1]) = ("8".into(), "9".into()));
    let days = |days: u64| std::time::SystemTime::now() - std::time::Duration::from_secs(days * 86_400 + 60);
    let put = |name: &str, age: u64| {
        let file = fs::File::create(tmp.join(name)).unwrap();
        std::io::Write::write_all(&mut &file, b"12345").unwrap();
        file.set_modified(days(age)).unwrap();
    };
    let names = |name: &str| fs::exists(tmp.join(name)).unwrap();
    [&dead, &restarted, &elsewhere].iter().for_each(|name| put(name, 0));
    put("foreign", 1000);
    assert_eq!(store.clear_unfinished().unwrap(), Cleared { files: 1, bytes: 5 });
    assert!(!names(&dead) && names(&restarted) && names(&elsewhere));
    for (age, gone) in [(1, [true, false]), (7, [true, true])] {
        fs::remove_file(tmp.join(&elsewhere)).unwrap();
        [&restarted, &elsewhere].iter().for_each(|name| put(name, age));
        let cleared = store.clear_unfinished().unwrap();
        assert_eq!(cleared.files, gone.iter().filter(|gone| **gone).count() as u64);
        assert_eq!([!names(&restarted), !names(&elsewhere)], gone, "{age} days");
    }
    // Whoever it belongs to knows. And nothing of the probes is left.
    assert!(names("foreign") && names(&ours));
    assert_eq!(fs::read_dir(&tmp).unwrap().count(), 2);
    upload.finish().unwrap();
    assert_eq!(store.get("a").unwrap(), b"1");
}

#[test]
fn a_writer_that_was_taken_for_dead_is_told_so() {
    let (_dir, path, store) = repo();
    let mut upload = store.upload("a", 0).unwrap();
    upload.write(b"1").unwrap();
    for entry in fs::read_dir(path.join(TMP)).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let error = upload.finish().unwrap_err();
    assert_eq!(error.kind, Kind::Transient);
    assert!(error.to_string().contains("'a'") && error.to_string().contains("took this one for dead"), "{error}");
    assert_eq!(store.len("a").unwrap(), None);
    store.put("a", b"2", Put::Create).unwrap();
}

#[test]
fn a_store_that_only_reads_starts_no_thread_and_writes_nothing() {
    let (_dir, path, store) = repo();
    store.put("a", b"1", Put::Create).unwrap();
    drop(store);
    fs::remove_dir(path.join(TMP)).unwrap();
    let store = LocalStore::open(&path).unwrap();
    store.get("a").unwrap();
    store.list("", &mut |_| ()).unwrap();
    assert!(store.inner.writer.get().is_none());
    assert!(!path.join(TMP).exists());
    store.put("b", b"1", Put::Create).unwrap();
}

/// A small file system of its own, unmounted when dropped.
struct Mount(tempfile::TempDir);

impl Mount {
    fn tmpfs(size: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = run("mount", &["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"], dir.path());
        mounted.then_some(Self(dir))
    }

    fn ext4(bytes: u64) -> Option<(Self, tempfile::NamedTempFile)> {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(bytes).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let name = image.path().to_str().unwrap();
        let made = run("mkfs.ext4", &["-q", "-F"], image.path()) && run("mount", &["-o", "loop", name], dir.path());
        made.then_some((Self(dir), image))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        run("umount", &["-l"], self.0.path());
    }
}

fn run(program: &str, args: &[&str], path: &Path) -> bool {
    let mut command = Command::new(program);
    command.args(args).arg(path).stdout(Stdio::null()).stderr(Stdio::null());
    let done = rustix::process::geteuid().is_root() && command.status().is_ok_and(|status| status.success());
    if !done {
        eprintln!("skipped: it takes root and {program}");
    }
    done
}

fn full_disk(mount: &Path) {
    let path = mount.join("repo");
    let store = LocalStore::create(&path).unwrap();
    store.put("small", b"1", Put::Create).unwrap();
    for hint in [0, 64 << 20] {
        let mut pack = store.upload("pack", hint).unwrap();
        let piece = vec![1; 1 << 20];
        // The error may come with a later write than the one that failed.
        let error = (0..64).find_map(|_| pack.write(&piece).err());
        let error = error.map_or_else(
            || pack.finish().unwrap_err(),
            |error| {
                assert_eq!(error.kind, Kind::Full, "and it stays");
                error
            },
        );
        assert_eq!(error.kind, Kind::Full, "{error}");
        assert_eq!(store.len("pack").unwrap(), None);
    }
    assert!(tmp_is_empty(&path));
    // What could not be written leaves its room to others.
    upload(&store, "fits", &vec![2; 4 << 20]).unwrap();
    let error = store.put("big", &vec![3; 32 << 20], Put::Create).unwrap_err();
    assert_eq!(error.kind, Kind::Full, "{error}");
    assert_eq!(store.len("big").unwrap(), None);
    assert!(tmp_is_empty(&path));
    assert_eq!(store.get("fits").unwrap(), vec![2; 4 << 20]);
    assert_eq!(store.get("small").unwrap(), b"1");
    store.sync().unwrap();
}

#[test]
fn a_full_tmpfs() {
    if let Some(mount) = Mount::tmpfs("16m") {
        full_disk(mount.path());
    }
}

#[test]
fn a_full_ext4() {
    if let Some((mount, _image)) = Mount::ext4(32 << 20) {
        full_disk(mount.path());
    }
}

/// What a power failure would leave: a copy of the image of a mounted file system has just what reached the device.
fn after_power_failure(image: &Path) -> (LocalStore, Mount, tempfile::NamedTempFile) {
    let copy = tempfile::NamedTempFile::new().unwrap();
    fs::copy(image, copy.path()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    assert!(run("mount", &["-o", "loop", copy.path().to_str().unwrap()], dir.path()));
    let mount = Mount(dir);
    (LocalStore::open(mount.path().join("repo")).unwrap(), mount, copy)
}

/// A copy after each step, since on this file system any later sync would cover up for a missing one.
#[test]
fn what_a_power_failure_leaves() {
    let Some((mount, image)) = Mount::ext4(32 << 20) else { return };
    let store = LocalStore::create(mount.path().join("repo")).unwrap();
    let after = || after_power_failure(image.path());

    store.put("new/folder/put", b"put", Put::Create).unwrap();
    fs::write(mount.path().join("repo/not-synced"), b"never synced").unwrap();
    let (found, _mount, _copy) = after();
    assert_eq!(found.get("new/folder/put").unwrap(), b"put");
    assert_ne!(found.get("not-synced").ok().as_deref(), Some(b"never synced".as_slice()), "the copy shows nothing");

    store.put("config", b"old", Put::Replace).unwrap();
    store.put("config", b"new", Put::Replace).unwrap();
    let (found, _mount, _copy) = after();
    assert_eq!(found.get("config").unwrap(), b"new");

    let pack: Vec<u8> = (0..3_000_001_u32).map(|i| (i % 251) as u8).collect();
    upload(&store, "packs/aa/finished", &pack).unwrap();
    let mut under_way = store.upload("packs/aa/under-way", 1 << 20).unwrap();
    under_way.write(&pack[..1000]).unwrap();
    let (found, _mount, _copy) = after();
    if found.len("packs/aa/finished").unwrap().is_some() {
        assert_eq!(found.get("packs/aa/finished").unwrap(), pack, "there in part");
    }
    assert_eq!(found.len("packs/aa/under-way").unwrap(), None);

    store.sync().unwrap();
    let (found, _mount, _copy) = after();
    assert_eq!(found.get("packs/aa/finished").unwrap(), pack);
    assert_eq!(found.len("packs/aa/under-way").unwrap(), None);

    // The others have all the seats, so this one goes through the page cache.
    let seated = [(); writer::BUFFERS].map(|()| store.upload("packs/bb/seated", 0).unwrap());
    upload(&store, "packs/bb/cached", &pack).unwrap();
    drop(seated);
    store.sync().unwrap();
    let (found, _mount, _copy) = after();
    assert_eq!(found.get("packs/bb/cached").unwrap(), pack);

    store.delete("packs/aa/finished").unwrap();
    store.sync().unwrap();
    let (found, _mount, _copy) = after();
    assert_eq!(found.len("packs/aa/finished").unwrap(), None);
}

#[test]
fn a_read_only_mount() {
    let Some(mount) = Mount::tmpfs("16m") else { return };
    let store = LocalStore::create(mount.path().join("repo")).unwrap();
    store.put("a", b"1", Put::Create).unwrap();
    assert!(run("mount", &["-o", "remount,ro"], mount.path()));
    refuses_writes(&store);
    let store = LocalStore::open(mount.path().join("repo")).unwrap();
    refuses_writes(&store);
}

#[test]
fn a_folder_without_permission() {
    if rustix::process::geteuid().is_root() {
        eprintln!("skipped: root may write anywhere");
        return;
    }
    let (_dir, path, store) = repo();
    store.put("a", b"1", Put::Create).unwrap();
    store.put("hidden/b", b"1", Put::Create).unwrap();
    let set = |name: &str, mode| fs::set_permissions(path.join(name), fs::Permissions::from_mode(mode)).unwrap();
    set("hidden", 0o000);
    let error = store.list("", &mut |_| ()).unwrap_err();
    assert!(error.kind == Kind::Refused && error.to_string().contains("'hidden'"), "{error}");
    set("hidden", 0o755);
    for name in [TMP, ""] {
        set(name, 0o500);
    }
    refuses_writes(&store);
    set("", 0o700);
}

fn refuses_writes(store: &LocalStore) {
    assert_eq!(store.get("a").unwrap(), b"1");
    let mut errors = vec![
        store.put("b", b"1", Put::Create).unwrap_err(),
        store.put("a", b"1", Put::Replace).unwrap_err(),
        store.delete("a").unwrap_err(),
    ];
    errors.extend(store.upload("b", 0).err());
    assert_eq!(errors.len(), 4);
    for error in errors {
        assert_eq!(error.kind, Kind::Refused, "{error}");
    }
    assert_eq!(store.get("a").unwrap(), b"1");
}
