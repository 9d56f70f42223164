//! What is durable, and when: syncs that are held back, watched, or fail.

use super::*;

/// Answers the sync of a folder as OpenSSH does where the file system doesn't know what that is, or otherwise; so many
/// of them.
const ROUGH: &str = r#"
opened, folders, syncing, left = set(), set(), set(), MOST

def heard(packet):
    global left
    number = packet[1:5]
    if packet[0] == 3:  # OPEN: path, flags
        length = struct.unpack(">I", packet[5:9])[0]
        if struct.unpack(">I", packet[9 + length:13 + length])[0] == 1:  # folders, and what is only read
            opened.add(number)
    if packet[0] == 200 and packet[9:26] == b"fsync@openssh.com" and packet[30:] in folders and left > 0:
        left -= 1
        syncing.add(number)
    return packet

def said(packet):
    number = packet[1:5]
    if packet[0] == 102:  # HANDLE
        (folders.add if number in opened else folders.discard)(packet[9:])
        opened.discard(number)
    if packet[0] == 101 and number in syncing:  # STATUS
        syncing.discard(number)
        packet = packet[:5] + struct.pack(">II", CODE, 11) + b"Bad message" + struct.pack(">I", 0)
    return packet
"#;

fn rough(code: &str, most: usize) -> String {
    ROUGH.replace("CODE", code).replace("MOST", &most.to_string())
}

/// What else can be done is done; a file that can't be synced is another matter.
#[test]
fn a_server_on_which_folders_can_not_be_synced_conforms() {
    let dir = tempfile::tempdir().unwrap();
    if location(dir.path(), "").is_none() || !has_python() {
        return;
    }
    for code in ["5", "8"] {
        let base = new_folder(dir.path(), code);
        let script = meddling(&base, &rough(code, usize::MAX));
        let count = std::cell::Cell::new(0);
        crate::conformance::check(|| {
            count.set(count.get() + 1);
            let repo = new_folder(&base, &format!("repo-{}", count.get()));
            Box::new(SftpStore::create(&through(&script, &repo, ""), &Surroundings::default()).unwrap())
        });
    }
}

/// Whether somebody waits for what he has put, or for all that he has finished and removed.
#[test]
fn a_failed_sync_of_a_folder_is_told_and_never_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    if location(dir.path(), "").is_none() || !has_python() {
        return;
    }
    let never = meddling(dir.path(), &rough("4", usize::MAX));
    let never = through(&never, &new_folder(dir.path(), "never"), "");
    SftpStore::create(&never, &Surroundings::default()).err().expect("nothing can be relied on there");
    // The kernel tells a failure once.
    let script = meddling(dir.path(), &rough("4", 1));
    let repo = new_folder(dir.path(), "repo");
    let there = SftpStore::create(&location(&repo, "").unwrap(), &Surroundings::default()).unwrap();
    there.put("d/a", b"1", Put::Create).unwrap();
    let open = || SftpStore::open(&through(&script, &repo, ""), &Surroundings::default()).unwrap();
    let store = open();
    store.put("d/b", b"2", Put::Create).unwrap_err();
    store.put("d/c", b"3", Put::Create).unwrap_err();
    store.sync().unwrap_err();
    let store = open();
    let mut upload = store.upload("data/1", 0).unwrap();
    upload.write(b"4").unwrap();
    upload.finish().unwrap();
    store.sync().unwrap_err();
    store.sync().unwrap_err();
    let store = open();
    store.delete("d/a").unwrap();
    store.sync().unwrap_err();
    store.put("d/a", b"5", Put::Replace).unwrap_err();
}

/// Nobody is to take it for whole then, by its name or by what he is told.
#[test]
fn a_file_that_can_not_be_synced_is_not_put() {
    let dir = tempfile::tempdir().unwrap();
    if location(dir.path(), "").is_none() || !has_python() {
        return;
    }
    let of_folders = "== 1:";
    assert!(ROUGH.contains(of_folders));
    for (code, options) in [("4", ""), ("5", ""), ("8", ""), ("4", "-P hardlink,posix-rename")] {
        let base = new_folder(dir.path(), &format!("{code}{options}"));
        let script = meddling(&base, &rough(code, usize::MAX).replace(of_folders, "!= 1:"));
        let repo = new_folder(&base, "repo");
        let store = SftpStore::create(&through(&script, &repo, options), &Surroundings::default()).unwrap();
        let told = |error: crate::Error| assert_eq!(error.kind, Kind::Io, "{code}: {error}");
        told(store.put("d/a", b"1", Put::Create).unwrap_err());
        told(store.put("d/a", b"1", Put::Replace).unwrap_err());
        store.expect(Soon::Bytes { name: "d/b", bytes: b"2" });
        told(store.put("d/b", b"2", Put::Create).unwrap_err());
        let mut upload = store.upload("data/1", 0).unwrap();
        upload.write(b"3").unwrap();
        told(upload.finish().unwrap_err());
        drop(store);
        let mut listed = Vec::new();
        crate::LocalStore::open(&repo).unwrap().list("", &mut |l| listed.push(l.name)).unwrap();
        assert!(listed.is_empty(), "{code}, '{options}': {listed:?}");
        assert_eq!(std::fs::read_dir(repo.join("tmp")).unwrap().count(), 0, "{code}, '{options}'");
    }
}

/// Writes down what a crash of the server's machine could take away at this moment: files whose last bytes, and folders
/// whose last change, were not synced since, each in a line; not what lies in `tmp/`. So does it, for good, with a name
/// that was given to a file before all in it was synced. A sync counts when it has succeeded, for what was asked for
/// before it; and its answer is kept back for a moment, so that nobody who doesn't wait for it is taken for one who
/// does.
const WATCHING: &str = r#"
import os, threading, time
opening, paths, naming, syncing = {}, {}, {}, {}
unsynced, early, told, one = {}, [], None, threading.Lock()

def text(packet, at):
    end = at + 4 + struct.unpack(">I", packet[at:at + 4])[0]
    return packet[at + 4:end].decode(), end

def handle(packet, at):
    return packet[at + 4:at + 4 + struct.unpack(">I", packet[at:at + 4])[0]]

def changed(path, number):
    unsynced.setdefault(path, set()).add(number)

def named(path, number):
    naming[number] = os.path.dirname(path) or "."
    changed(naming[number], number)

def tell():
    global told
    lying = [path for path, changes in unsynced.items() if changes and "tmp" not in path.split("/")]
    lines = "".join(f"{line}\n" for line in early + sorted(lying))
    if lines != told:
        with open("STATE.new", "w") as file:
            file.write(lines)
        os.replace("STATE.new", "STATE")
        told = lines

def heard(packet):
    with one:
        note(packet[0], packet[1:5], packet, 5)
        tell()
    return packet

def note(kind, number, packet, at):
    if kind == 200:  # EXTENDED
        kind, at = text(packet, at)
    if kind == 6:  # WRITE
        changed(paths.get(handle(packet, at), "?"), number)
    elif kind == "fsync@openssh.com":
        path = paths.get(handle(packet, at))
        syncing[number] = path, set(unsynced.get(path, ()))
    elif kind == 3:  # OPEN
        path, at = text(packet, at)
        opening[number] = os.path.normpath(path)
        if struct.unpack(">I", packet[at:at + 4])[0] & 8:  # CREATE
            named(path, number)
    elif kind in (13, 14):  # REMOVE, MKDIR
        named(text(packet, at)[0], number)
    elif kind in (18, "hardlink@openssh.com", "posix-rename@openssh.com"):
        path, at = text(packet, at)
        if unsynced.get(path):
            early.append(f"{text(packet, at)[0]} was named too early")
        named(text(packet, at)[0], number)

def said(packet):
    number, done = packet[1:5], packet[0] == 102 or packet[0] == 101 and packet[5:9] == bytes(4)
    if number in syncing:
        time.sleep(0.01)
    with one:
        if packet[0] == 102 and number in opening:  # HANDLE
            paths[packet[9:]] = opening.pop(number)
        if number in syncing:
            path, changes = syncing.pop(number)
            unsynced[path] = unsynced.get(path, set()) - (changes if done else set())
        if number in naming and not done:
            unsynced[naming[number]].discard(number)
        tell()
    return packet
"#;

/// What is put, and what was finished or removed and then synced, is there after a crash: in this order, and before the
/// call returns.
#[test]
fn nothing_is_named_or_promised_before_it_is_synced() {
    let dir = tempfile::tempdir().unwrap();
    if location(dir.path(), "").is_none() || !has_python() {
        return;
    }
    // By a link or a rename, the file open to be written again or not; and all under its own name.
    let ways = ["", "-P hardlink", "-P posix-rename", "-P posix-rename,hardlink", "-P rename,posix-rename,hardlink"];
    for (number, options) in ways.into_iter().enumerate() {
        let base = new_folder(dir.path(), &number.to_string());
        let (repo, state) = (new_folder(&base, "repo"), base.join("state"));
        let script = meddling(&base, &WATCHING.replace("STATE", state.to_str().unwrap()));
        let lying = || std::fs::read_to_string(&state).unwrap();
        let safe = |done: &str| assert_eq!(lying(), "", "'{options}': after {done}");

        let store = SftpStore::create(&through(&script, &repo, options), &Surroundings::default()).unwrap();
        safe("its creation");
        let put = |name: &str, bytes: &[u8], how| {
            store.put(name, bytes, how).unwrap();
            safe(name);
        };
        put("top", b"one", Put::Create);
        put("d/a", b"one", Put::Create);
        put("d/empty", b"", Put::Create);
        store.expect(Soon::Put);
        put("d/b", &[7; 100_000], Put::Create);
        store.expect(Soon::Bytes { name: "e/f/c", bytes: b"c" });
        put("e/f/c", b"c", Put::Create);
        put("e/g/d", b"d", Put::Create);
        put("h/new", b"two", Put::Replace);
        if !options.contains("posix-rename") {
            put("top", b"two", Put::Replace);
        }

        // The first is synced more than once while it is written.
        for (name, len) in [("data/1f/1", 9 << 20), ("data/1f/2", 3), ("data/2e/3", 0), ("data/2e/4", 700_000)] {
            let mut upload = store.upload(name, 0).unwrap();
            upload.write(&vec![8; len]).unwrap();
            upload.finish().unwrap();
            let early = lying().lines().any(|line| line.contains("too early") || line == name);
            assert!(!early, "'{options}': {}", lying());
        }
        assert_ne!(lying(), "", "'{options}': whoever is watching sees nothing");
        store.sync().unwrap();
        safe("a sync");

        for name in ["top", "d/a", "e/f/c", "data/2e/3"] {
            store.delete(name).unwrap();
        }
        store.sync().unwrap();
        safe("removals");
        put("d/a", b"three", Put::Create);
    }
}

/// The repository's own folder is new, and stands in another one.
#[test]
fn a_repository_is_there_after_a_crash_once_it_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let Some(Location::Program(server)) = location(dir.path(), "").filter(|_| has_python()) else { return };
    let state = dir.path().join("state");
    let script = meddling(dir.path(), &WATCHING.replace("STATE", state.to_str().unwrap()));
    let ssh_command = Some(format!("exec python3 '{}' \"{server}\"", script.display()));
    let around = Surroundings { ssh_command, ..Surroundings::default() };
    let store = SftpStore::create(&Location::parse("sftp://host/~/repo").unwrap(), &around).unwrap();
    assert!(dir.path().join("repo/tmp").is_dir());
    assert_eq!(std::fs::read_to_string(&state).unwrap(), "", "after its creation");
    store.put("d/a", b"1", Put::Create).unwrap();
    assert_eq!(std::fs::read_to_string(&state).unwrap(), "", "after a put");
}

/// Answers the first WRITE of a file behind the sync that comes after it, with a failure.
const LATE: &str = r#"
import threading
late, syncing = set(), set()

def heard(packet):
    number = packet[1:5]
    if packet[0] == 6:  # WRITE: handle, offset
        length = struct.unpack(">I", packet[5:9])[0]
        if struct.unpack(">Q", packet[9 + length:17 + length])[0] == 0:
            late.add(number)
    if packet[0] == 200 and packet[9:26] == b"fsync@openssh.com":
        syncing.add(number)
    return packet

def said(packet):
    number = packet[1:5]
    if packet[0] == 101 and number in late:  # STATUS
        return None
    if packet[0] == 101 and number in syncing and late:
        failed = b"\x65" + late.pop() + struct.pack(">II", 4, 10) + b"quota used" + struct.pack(">I", 0)
        threading.Timer(0.3, say, [failed]).start()
    return packet

def say(packet):
    sys.stdout.buffer.write(struct.pack(">I", len(packet)) + packet)
    sys.stdout.buffer.flush()
"#;

/// What a server says of a sync counts for what it has written by then, and it may answer in any order.
#[test]
fn a_write_that_fails_behind_a_sync_is_heard() {
    let dir = tempfile::tempdir().unwrap();
    if location(dir.path(), "").is_none() || !has_python() {
        return;
    }
    let script = meddling(dir.path(), LATE);
    let repo = new_folder(dir.path(), "repo");
    let store = SftpStore::create(&through(&script, &repo, ""), &Surroundings::default()).unwrap();
    let mut upload = store.upload("data/1", 0).unwrap();
    upload.write(&vec![1; 3 << 20]).unwrap();
    let error = upload.finish().unwrap_err();
    assert!(error.to_string().contains("quota used"), "{error}");
    assert_eq!(store.len("data/1").unwrap(), None);
}
