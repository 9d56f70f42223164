//! What each account may do, and what it leaves.

use std::cell::Cell;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use drumlin_store::conformance::{self, May};
use drumlin_store::{Kind, Put, SftpStore, Store, Surroundings};
use drumlin_testkit::{LoopFs, Sshd};

use crate::place::Place;

fn conforms(account: &str, base: &str, may: May) {
    if let Some(place) = Place::new() {
        conforms_at(&place, account, base, may);
    }
}

fn conforms_at(place: &Place, account: &str, base: &str, may: May) {
    let count = Cell::new(0);
    conformance::check_as(may, || {
        count.set(count.get() + 1);
        Box::new(place.create(account, &format!("{base}repo-{}", count.get())))
    });
}

#[test]
fn plain_conforms() {
    conforms("plain", "/~/", May::ALL);
}

#[test]
fn a_chroot_conforms() {
    conforms("jail", "/data/", May::ALL);
}

#[test]
fn an_account_that_may_rename_and_not_remove_conforms() {
    conforms("publish", "/~/", May { remove: false, ..May::ALL });
}

#[test]
fn an_account_that_may_only_add_conforms() {
    conforms("append", "/~/", May { remove: false, hide: false, ..May::ALL });
}

#[test]
fn accounts_of_proftpd_conform() {
    let Some(server) = Sshd::start_proftpd() else { return };
    let place = Place::over(server, "");
    conforms_at(&place, "jail", "/data/", May::ALL);
    conforms_at(&place, "append", "/~/", May { remove: false, hide: false, ..May::ALL });
}

fn modes(folder: &Path) -> Vec<(String, u32)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let meta = entry.metadata().unwrap();
        if meta.is_dir() {
            found.extend(modes(&entry.path()));
        } else {
            found.push((entry.file_name().into_string().unwrap(), meta.permissions().mode() & 0o777));
        }
    }
    found.sort();
    found
}

/// Every object is read-only, whichever way it came: nobody can open it to write where setstat is forbidden.
#[test]
fn objects_are_read_only_and_nothing_else_is_left() {
    let Some(place) = Place::new() else { return };
    for (account, base) in [("plain", "/~/r"), ("jail", "/data/r"), ("publish", "/~/r"), ("append", "/~/r")] {
        let store = place.create(account, base);
        store.put("d/put", b"1", Put::Create).unwrap();
        let mut upload = store.upload("e/upload", 0).unwrap();
        upload.write(&vec![7; 1 << 20]).unwrap();
        upload.finish().unwrap();
        store.sync().unwrap();
        drop(store);
        let folder = place.sshd.folder(account).join(if account == "jail" { "data/r" } else { "r" });
        let expected = [("put".to_owned(), 0o444), ("upload".to_owned(), 0o444)];
        assert_eq!(modes(&folder), expected, "{account}");
        let mode = folder.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700, "{account}");
    }
}

/// With the account's own key and any client, nothing that is stored can be changed.
#[test]
fn a_thief_of_an_account_that_may_only_add_changes_nothing() {
    let Some(place) = Place::new() else { return };
    for account in ["append", "publish"] {
        let store = place.create(account, "/~/r");
        store.put("d/a", b"dear", Put::Create).unwrap();
        let config = place.sshd.config(place.sshd.port(), "BatchMode yes\nStrictHostKeyChecking yes");
        let file = place.sshd.folder(account).join("r/d/a");
        let scratch = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(scratch.path(), "junk").unwrap();
        let put = format!("put {} r/d/a", scratch.path().display());
        for attack in [put.as_str(), "rm r/d/a", "chmod 600 r/d/a", "rename r/x r/d/a", "ln r/x r/d/a", "rmdir r/d"] {
            assert!(!attacked(&config, account, attack), "{account}: {attack}");
            assert_eq!(std::fs::read(&file).unwrap(), b"dear", "{account}: {attack}");
        }
        assert!(!cut(&config, account, "r/d/a"), "{account}");
        assert_eq!(std::fs::read(&file).unwrap(), b"dear", "{account}");
    }
}

/// The same, of ProFTPD's: it lets files be linked, and nothing be opened that is there.
#[test]
fn a_thief_of_an_account_of_proftpd_that_may_only_add_changes_nothing() {
    let Some(server) = Sshd::start_proftpd() else { return };
    let place = Place::over(server, "");
    place.create("append", "/~/r").put("d/a", b"dear", Put::Create).unwrap();
    let config = place.sshd.config(place.sshd.port(), "BatchMode yes\nStrictHostKeyChecking yes");
    let file = place.sshd.folder("append").join("r/d/a");
    let scratch = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(scratch.path(), "junk, and more of it").unwrap();
    let with = |command: &str, to: &str| format!("{command} {} {to}", scratch.path().display());
    assert!(attacked(&place.sshd.config(place.sshd.port(), ""), "append", &with("put", "r/x")), "it may add");
    for attack in [
        "chmod 666 r/d/a",
        &with("put", "r/d/a"),
        &with("reput", "r/d/a"),
        "rm r/d/a",
        "rename r/d/a r/d/b",
        "rename -l r/d/a r/d/b",
        "rename r/x r/d/a",
        "rename -l r/x r/d/a",
        "ln r/x r/d/a",
        "ln -s r/x r/d/a",
        "rmdir r/d",
        "rename r/d r/e",
        "-ln r/d/a r/y",
        &with("put", "r/y"),
    ] {
        assert_eq!(attacked(&config, "append", attack), attack.starts_with('-'), "{attack}");
        assert_eq!(std::fs::read(&file).unwrap(), b"dear", "{attack}");
    }
    assert!(!cut(&config, "append", "r/d/a"));
    assert_eq!(std::fs::read(&file).unwrap(), b"dear");
}

/// Whether a file can be cut off by its attributes, which OpenSSH's client has no command for: mode and length are set
/// in one request.
fn cut(config: &Path, account: &str, path: &str) -> bool {
    let packet = |kind: u8, body: &[u8]| {
        let len = u32::try_from(body.len() + 1).unwrap().to_be_bytes();
        [&len[..], &[kind], body].concat()
    };
    let (id, len) = (7u32.to_be_bytes(), u32::try_from(path.len()).unwrap().to_be_bytes());
    // SETSTAT of protocol 3: the flags say that a length and a mode follow.
    let attributes = [&5u32.to_be_bytes()[..], &1u64.to_be_bytes(), &0o644u32.to_be_bytes()].concat();
    let requests =
        [packet(1, &3u32.to_be_bytes()), packet(9, &[&id, &len, path.as_bytes(), &attributes].concat())].concat();
    let mut ssh = Command::new("ssh");
    ssh.arg("-F").arg(config).args(["-s", account, "sftp"]);
    let mut ssh = ssh.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdin = ssh.stdin.take().unwrap();
    stdin.write_all(&requests).unwrap();
    let mut stdout = ssh.stdout.take().unwrap();
    let mut reply = || {
        let mut len = [0; 4];
        stdout.read_exact(&mut len).unwrap();
        let mut reply = vec![0; u32::from_be_bytes(len) as usize];
        stdout.read_exact(&mut reply).unwrap();
        reply
    };
    let (version, status) = (reply(), reply());
    drop(stdin);
    ssh.wait().unwrap();
    assert_eq!((version[0], status[0], &status[1..5]), (2, 101, &id[..]));
    status[5..9] == [0; 4]
}

/// Whether OpenSSH's client does this by a command of its own.
fn attacked(config: &Path, account: &str, attack: &str) -> bool {
    let mut sftp = Command::new("sftp");
    sftp.args(["-q", "-b", "-", "-F"]).arg(config).arg(account);
    let mut sftp = sftp.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    sftp.stdin.take().unwrap().write_all(attack.as_bytes()).unwrap();
    sftp.wait().unwrap().success()
}

/// Folders that an administrator made, and no right to make others.
#[test]
fn an_account_whose_files_are_all_read_only() {
    let home = tempfile::Builder::new().prefix("drumlin-worm-").tempdir().unwrap();
    let Some(sshd) = Sshd::start_in(&home.path().join("s"), &[("DIRS", "r r/a r/b")]) else { return };
    let around = Surroundings { ssh_config: Some(sshd.config(sshd.port(), "")), ..Surroundings::default() };
    let location = drumlin_store::Location::parse("sftp://worm/~/r").unwrap();
    let store = SftpStore::create(&location, &around).unwrap();
    store.put("a/1", b"1", Put::Create).unwrap();
    let mut upload = store.upload("b/2", 0).unwrap();
    upload.write(b"22").unwrap();
    upload.finish().unwrap();
    store.sync().unwrap();
    let mut names = Vec::new();
    store.list("", &mut |l| names.push((l.name, l.len))).unwrap();
    names.sort();
    assert_eq!(names, [("a/1".to_owned(), 1), ("b/2".to_owned(), 2)]);
    assert_eq!(store.put("a/1", b"2", Put::Replace).unwrap_err().kind, Kind::Refused);
    assert_eq!(store.delete("a/1").unwrap_err().kind, Kind::Refused);
    assert!(store.put("c/1", b"1", Put::Create).is_err(), "a folder that may not be made");
    assert_eq!(SftpStore::create(&location, &around).err().map(|e| e.kind), Some(Kind::Exists));
}

#[test]
fn folders_that_are_missing_full_or_none() {
    let Some(place) = Place::new() else { return };
    let create = |folder: &str| SftpStore::create(&place.location("plain", folder), &place.around());
    let error = create("/~/no/such").err().unwrap();
    assert_eq!(error.kind, Kind::Missing, "{error}");
    assert!(error.to_string().contains("the folder above it does not exist"), "{error}");

    // Opened, and asked for something, which is when it is noticed.
    let error = place.open("plain", "/~/none").unwrap().get("config").unwrap_err();
    assert_eq!((error.kind, error.name.as_str()), (Kind::Missing, ""), "{error}");
    let error = place.open("plain", "/~/none").unwrap().list("", &mut |_| ()).unwrap_err();
    assert_eq!((error.kind, error.name.as_str()), (Kind::Missing, ""), "{error}");

    let home = place.sshd.folder("plain");
    std::fs::write(home.join("file"), "1").unwrap();
    assert_eq!(create("/~/file").err().map(|e| e.kind), Some(Kind::Io));
    // Another program's.
    std::fs::create_dir_all(home.join("photos/2020")).unwrap();
    std::fs::write(home.join("photos/2020/1.jpg"), "1").unwrap();
    assert_eq!(create("/~/photos").err().map(|e| e.kind), Some(Kind::Exists));
    assert_eq!(create("/~/").err().map(|e| e.kind), Some(Kind::Exists));
    let error = create("/etc/repo").err().unwrap();
    assert_eq!(error.kind, Kind::Refused, "{error}");
    assert!(error.to_string().contains("permission denied"), "{error}");

    // Removed while it is in use.
    let store = create("/~/r").unwrap();
    store.put("a", b"1", Put::Create).unwrap();
    std::fs::remove_dir_all(home.join("r")).unwrap();
    for kind in [store.get("a").err(), store.len("a").err(), store.list("", &mut |_| ()).err()] {
        let error = kind.unwrap();
        assert_eq!(error.kind, Kind::Io, "{error}");
        assert!(error.to_string().contains("removed while it was in use"), "{error}");
    }
}

#[test]
fn names_of_others_are_no_objects_and_links_are_told() {
    let Some(place) = Place::new() else { return };
    let store = place.create("plain", "/~/r");
    store.put("d/a", b"1", Put::Create).unwrap();
    let folder = place.sshd.folder("plain").join("r");
    use std::os::unix::ffi::OsStrExt;
    std::fs::write(folder.join("d").join(std::ffi::OsStr::from_bytes(b"odd\xff")), "1").unwrap();
    std::fs::write(folder.join(".hidden"), "1").unwrap();
    std::fs::write(folder.join("d/a b"), "1").unwrap();
    let mut names = Vec::new();
    store.list("", &mut |l| names.push(l.name)).unwrap();
    assert_eq!(names, ["d/a"]);
    std::os::unix::fs::symlink("a", folder.join("d/link")).unwrap();
    for error in [store.list("", &mut |_| ()).err(), store.get("d/link").err(), store.len("d/link").err()] {
        let error = error.unwrap();
        assert_eq!(error.kind, Kind::Refused, "{error}");
        assert!(error.to_string().contains("symbolic link"), "{error}");
    }
}

#[test]
fn an_object_of_any_length() {
    let Some(place) = Place::new() else { return };
    let store = place.create("plain", "/~/r");
    let file = std::fs::File::create(place.sshd.folder("plain").join("r/config")).unwrap();
    file.set_len(1 << 40).unwrap();
    file.set_permissions(std::fs::Permissions::from_mode(0o444)).unwrap();
    let error = store.get("config").unwrap_err();
    assert!(error.kind == Kind::Io && error.to_string().contains("longer than any object"), "{error}");
}

#[test]
fn a_full_disk_is_told_and_harms_nothing() {
    let Some(fs) = LoopFs::new(48 << 20) else { return eprintln!("skipped: no file system can be mounted here") };
    std::fs::set_permissions(fs.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let Some(sshd) = Sshd::start_in(&fs.path().join("s"), &[]) else { return };
    let around = Surroundings { ssh_config: Some(sshd.config(sshd.port(), "")), ..Surroundings::default() };
    let location = drumlin_store::Location::parse("sftp://plain/~/r").unwrap();
    let store = SftpStore::create(&location, &around).unwrap();
    store.put("a", b"1", Put::Create).unwrap();
    let mut upload = store.upload("large", 0).unwrap();
    let mut fill = || -> drumlin_store::Result<()> {
        for _ in 0..64 {
            upload.write(&vec![7; 1 << 20])?;
        }
        Ok(())
    };
    let error = fill().unwrap_err();
    assert_eq!(error.kind, Kind::Full, "{error}");
    assert!(error.to_string().contains("no space is left on the server"), "{error}");
    drop(upload);
    assert_eq!(store.get("a").unwrap(), b"1");
    store.put("b", b"2", Put::Create).unwrap();
    drop(store);
    // Nobody waits for the server to remove what was given up: it may come to that after the line is closed.
    let left = || std::fs::read_dir(sshd.folder("plain").join("r/tmp")).unwrap().count();
    let begun = std::time::Instant::now();
    while left() > 0 {
        assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{} left", left());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// What runs that were killed left goes, and what lives stays.
#[test]
fn leftovers_are_cleared() {
    let Some(place) = Place::new() else { return };
    let store = place.create("plain", "/~/r");
    let tmp = place.sshd.folder("plain").join("r/tmp");
    let mut upload = store.upload("living", 0).unwrap();
    // More than is held back until all of it is there.
    upload.write(&vec![7; 2 << 20]).unwrap();
    let living = std::fs::read_dir(&tmp).unwrap().next().unwrap().unwrap().file_name().into_string().unwrap();
    // The same process but for its number, which nobody has.
    let mut parts: Vec<&str> = living.split('-').collect();
    parts[3] = "7ffffffe";
    std::fs::write(tmp.join(parts.join("-")), "12345").unwrap();
    // Of another host, and of today.
    parts[1] = "1111111111111111";
    std::fs::write(tmp.join(parts.join("-")), "123").unwrap();
    parts[4] = "0000000000000001";
    let old = tmp.join(parts.join("-"));
    let file = std::fs::File::create(&old).unwrap();
    file.set_times(std::fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH)).unwrap();
    std::fs::write(tmp.join("what-is-this"), "1").unwrap();
    let cleared = store.clear_unfinished().unwrap();
    assert_eq!((cleared.files, cleared.bytes), (2, 5));
    upload.finish().unwrap();
    assert_eq!(store.len("living").unwrap(), Some(2 << 20));
    assert_eq!(std::fs::read_dir(&tmp).unwrap().count(), 2);
}
