//! The store over OpenSSH's server, as a program on this machine: no network, no login.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;

use super::*;

mod ahead;
mod durable;

const SERVER: &str = "/usr/lib/openssh/sftp-server";

/// A location in `folder`; `None` where there is no such server.
fn location(folder: &Path, options: &str) -> Option<Location> {
    if !Path::new(SERVER).exists() {
        assert!(std::env::var_os("DRUMLIN_SERVERS").is_none(), "{SERVER} is missing");
        eprintln!("skipped: there is no {SERVER}");
        return None;
    }
    Some(Location::Program(format!("exec {SERVER} {options} -d '{}'", folder.display())))
}

fn new_folder(base: &Path, name: &str) -> PathBuf {
    let folder = base.join(name);
    std::fs::create_dir(&folder).unwrap();
    folder
}

#[test]
fn conforms() {
    let dir = tempfile::tempdir().unwrap();
    let count = std::cell::Cell::new(0);
    if location(dir.path(), "").is_none() {
        return;
    }
    crate::conformance::check(|| {
        count.set(count.get() + 1);
        let folder = new_folder(dir.path(), &format!("repo-{}", count.get()));
        let location = location(&folder, "").unwrap();
        Box::new(SftpStore::create(&location, &Surroundings::default()).unwrap())
    });
    for number in 1..=count.get() {
        let left: Vec<_> =
            std::fs::read_dir(dir.path().join(format!("repo-{number}/tmp"))).unwrap().flatten().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Stands between a client and the server, and does with each packet, heard or said, what the functions `heard` and
/// `said` of `how` make of it. Its argument is the server's command.
fn meddling(folder: &Path, how: &str) -> PathBuf {
    let script = folder.join("meddling.py");
    let pump = r#"
import struct, subprocess, sys, threading
server = subprocess.Popen(sys.argv[1], shell=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

def pump(source, to, change):
    while head := source.read(4):
        packet = change(source.read(struct.unpack(">I", head)[0]))
        if packet is not None:
            to.write(struct.pack(">I", len(packet)) + packet)
            to.flush()
    to.close()

threading.Thread(target=pump, args=(sys.stdin.buffer, server.stdin, heard), daemon=True).start()
pump(server.stdout, sys.stdout.buffer, said)
"#;
    std::fs::write(&script, format!("import struct\n{how}{pump}")).unwrap();
    script
}

/// A location in `folder`, with such a one in between.
fn through(script: &Path, folder: &Path, options: &str) -> Location {
    let server = format!("exec {SERVER} {options} -d '{}'", folder.display());
    Location::Program(format!("exec python3 '{}' \"{server}\"", script.display()))
}

/// Makes a failure of each answer to the CLOSE of a file that was written to at offset 0 with the bytes `full`.
const REFUSING: &str = r#"
closing, full = set(), set()

def heard(packet):
    if packet[0] in (4, 6):  # CLOSE, WRITE: id, handle
        number, length = struct.unpack(">II", packet[1:9])
        handle = packet[9:9 + length]
        if packet[0] == 6 and packet[9 + length + 12:].startswith(b"full"):
            full.add(handle)
        if packet[0] == 4 and handle in full:
            full.discard(handle)
            closing.add(number)
    return packet

def said(packet):
    if packet[0] == 101 and struct.unpack(">I", packet[1:5])[0] in closing:  # STATUS
        packet = packet[:5] + struct.pack(">II", 4, 10) + b"quota used" + struct.pack(">I", 0)
    return packet
"#;

/// Tells another length at each look.
const RESTLESS: &str = r#"
looks = 0

def heard(packet):
    return packet

def said(packet):
    global looks
    if packet[0] == 105 and packet[8] & 1:  # ATTRS with a length
        looks += 1
        length = struct.unpack(">Q", packet[9:17])[0] + looks % 7
        packet = packet[:9] + struct.pack(">Q", length) + packet[17:]
    return packet
"#;

/// Keeps back what it says for a while whenever data or a file's end of writing are asked for, and writes down how many
/// of those requests were on their way at once.
const COUNTING: &str = r#"
import pathlib, time
under_way, most = set(), {5: 0, 6: 0}

def heard(packet):
    if packet[0] in most:  # READ, WRITE
        under_way.add(packet[1:5])
        if len(under_way) > most[packet[0]]:
            most[packet[0]] = len(under_way)
            pathlib.Path("MOST").write_text(f"{most[5]} {most[6]}")
    return packet

def said(packet):
    if packet[1:5] in under_way:
        time.sleep(0.3 if len(under_way) < 10 else 0)
        under_way.discard(packet[1:5])
    return packet
"#;

/// Gives handles that are none of OpenSSH's: MAKE makes another one of its own, and UNMAKE that of another one.
const RENAMING: &str = r#"
def make(handle): return MAKE

def unmake(handle): return UNMAKE

def heard(packet):
    at = 5
    if packet[0] == 200:  # EXTENDED: the name of what is wanted comes first
        length = struct.unpack(">I", packet[5:9])[0]
        at = 9 + length if packet[9:9 + length] == b"fsync@openssh.com" else 0
    if at and packet[0] in (4, 5, 6, 8, 10, 12, 200):  # CLOSE, READ, WRITE, FSTAT, FSETSTAT, READDIR
        end = at + 4 + struct.unpack(">I", packet[at:at + 4])[0]
        handle = unmake(packet[at + 4:end])
        packet = packet[:at] + struct.pack(">I", len(handle)) + handle + packet[end:]
    return packet

def said(packet):
    if packet[0] == 102:  # HANDLE
        handle = make(packet[9:])
        packet = packet[:5] + struct.pack(">I", len(handle)) + handle
    return packet
"#;

/// What is asked of handles that were only guessed does no harm where they are others.
#[test]
fn a_server_whose_handles_are_others_conforms() {
    let dir = tempfile::tempdir().unwrap();
    if location(dir.path(), "").is_none() || !has_python() {
        return;
    }
    let back = r#"bytes([handle[0] ^ 255, *handle[1:3], handle[3] ^ 255])"#;
    let kinds = [("text", r#"b"file-" + handle"#, "handle[5:]"), ("numbers", back, back)];
    for (kind, make, unmake) in kinds {
        let base = new_folder(dir.path(), kind);
        let script = meddling(&base, &RENAMING.replace("UNMAKE", unmake).replace("MAKE", make));
        let count = std::cell::Cell::new(0);
        crate::conformance::check(|| {
            count.set(count.get() + 1);
            let repo = new_folder(&base, &format!("repo-{}", count.get()));
            Box::new(SftpStore::create(&through(&script, &repo, ""), &Surroundings::default()).unwrap())
        });
    }
}

/// Hides that it can replace, and does so by its plain rename.
const REPLACING: &str = r#"
name = b"posix-rename@openssh.com"

def heard(packet):
    if packet[0] == 18:  # RENAME
        packet = bytes([200]) + packet[1:5] + struct.pack(">I", len(name)) + name + packet[5:]
    return packet

def said(packet):
    if packet[0] == 2:  # VERSION
        packet = packet.replace(name, b"posix-RENAME@example.com")
    return packet
"#;

/// It offers none of OpenSSH's extensions: everything depends on what its rename does.
#[test]
fn a_server_whose_rename_replaces_conforms() {
    let dir = tempfile::tempdir().unwrap();
    if location(dir.path(), "").is_none() || !has_python() {
        return;
    }
    let script = meddling(dir.path(), REPLACING);
    let count = std::cell::Cell::new(0);
    crate::conformance::check(|| {
        count.set(count.get() + 1);
        let repo = new_folder(dir.path(), &format!("repo-{}", count.get()));
        let location = through(&script, &repo, "-P fsync,hardlink");
        Box::new(SftpStore::create(&location, &Surroundings::default()).unwrap())
    });
}

/// What was announced is put as if it had not been, and what is never put leaves nothing.
#[test]
fn what_is_announced_is_put_as_anything_is() {
    let dir = tempfile::tempdir().unwrap();
    for (number, options) in [
        "",
        "-P hardlink",
        "-P posix-rename",
        "-P rename,posix-rename,hardlink",
        "-P fsync",
        "-P fsync,hardlink,posix-rename",
    ]
    .into_iter()
    .enumerate()
    {
        let repo = new_folder(dir.path(), &number.to_string());
        let Some(location) = location(&repo, options) else { return };
        let store = SftpStore::create(&location, &Surroundings::default()).unwrap();
        let soon = |name, bytes| store.expect(Soon::Bytes { name, bytes });
        store.put("d/taken", b"first", Put::Create).unwrap();
        soon("d/a", b"a");
        soon("d/other", b"what is not put");
        soon("d/taken", b"second");
        soon("d/never", b"never");
        soon("e/replaced", b"new");
        store.put("d/a", b"a", Put::Create).unwrap();
        store.put("d/a", b"a", Put::Create).unwrap_err();
        store.put("d/other", b"what is put", Put::Create).unwrap();
        assert_eq!(store.put("d/taken", b"second", Put::Create).unwrap_err().kind, Kind::Exists, "{options}");
        let replaced = store.put("e/replaced", b"new", Put::Replace);
        assert!(replaced.is_ok(), "{options}: {replaced:?}");
        drop(store);
        let there = crate::LocalStore::open(&repo).unwrap();
        for (name, bytes) in
            [("d/a", &b"a"[..]), ("d/other", b"what is put"), ("d/taken", b"first"), ("e/replaced", b"new")]
        {
            assert_eq!(there.get(name).unwrap(), bytes, "{options}: {name}");
        }
        assert!(there.len("d/never").unwrap().is_none(), "{options}");
        assert_eq!(std::fs::read_dir(repo.join("tmp")).map_or(0, Iterator::count), 0, "{options}");
    }
}

/// However little time there was to write it: whoever has let go of a store finds nothing of his there.
#[test]
fn what_was_announced_and_is_never_put_goes_with_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let repo = new_folder(dir.path(), "repo");
    let Some(location) = location(&repo, "") else { return };
    SftpStore::create(&location, &Surroundings::default()).unwrap();
    for of in 0..20 {
        let store = SftpStore::open(&location, &Surroundings::default()).unwrap();
        for name in ["d/a", "d/b", "e/a"] {
            store.expect(Soon::Bytes { name, bytes: b"never" });
        }
        drop(store);
        assert_eq!(std::fs::read_dir(repo.join("tmp")).map_or(0, Iterator::count), 0, "time {of}");
    }
}

/// Nobody waits for ever for what was announced and can't be written, or not any more.
#[test]
fn who_lets_go_at_once_leaves_no_connection() {
    let dir = tempfile::tempdir().unwrap();
    for (number, options) in ["", "-P posix-rename", "-P open"].into_iter().enumerate() {
        let repo = new_folder(dir.path(), &number.to_string());
        if location(&repo, "").is_none() {
            return;
        }
        SftpStore::create(&location(&repo, "").unwrap(), &Surroundings::default()).unwrap();
        for _ in 0..20 {
            let store = SftpStore::open(&location(&repo, options).unwrap(), &Surroundings::default()).unwrap();
            store.expect(Soon::Bytes { name: "d/a", bytes: b"a" });
        }
        let running = || {
            let listed = std::process::Command::new("pgrep").arg("-f").arg(&repo).output().unwrap().stdout;
            String::from_utf8_lossy(&listed).lines().count()
        };
        let begun = std::time::Instant::now();
        while running() > 0 {
            assert!(begun.elapsed().as_secs() < 20, "'{options}': {} servers are left", running());
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

#[test]
fn sixty_four_requests_of_a_connection_are_under_way_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let repo = new_folder(dir.path(), "repo");
    let Some(Location::Program(server)) = location(&repo, "").filter(|_| has_python()) else { return };
    let most = dir.path().join("most");
    let script = meddling(dir.path(), &COUNTING.replace("MOST", most.to_str().unwrap()));
    let command = format!("exec python3 '{}' \"{server}\"", script.display());
    let store = SftpStore::create(&Location::Program(command), &Surroundings::default()).unwrap();
    let bytes = vec![7; 40 << 20];
    let mut counted: Vec<usize> = Vec::new();
    // On a busy machine the server keeps up with whoever asks, once in a while.
    for n in 0..5 {
        let name = format!("data/{n}");
        let mut upload = store.upload(&name, bytes.len() as u64).unwrap();
        upload.write(&bytes).unwrap();
        upload.finish().unwrap();
        let mut back = vec![0; bytes.len()];
        store.read_at(&name, 0, &mut back).unwrap();
        assert!(back == bytes);
        let text = std::fs::read_to_string(&most).unwrap();
        counted = text.split(' ').map(|number| number.parse().unwrap()).collect();
        if counted.iter().all(|at_once| *at_once >= 60) {
            break;
        }
    }
    assert!(counted.iter().all(|at_once| (60..=66).contains(at_once)), "reads and writes: {counted:?}");
}

fn has_python() -> bool {
    std::process::Command::new("python3").arg("--version").output().is_ok()
}

#[test]
fn a_server_that_says_something_else_at_each_look_is_not_asked_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let repo = new_folder(dir.path(), "repo");
    let Some(Location::Program(server)) = location(&repo, "").filter(|_| has_python()) else { return };
    crate::LocalStore::create(&repo).unwrap().put("d/a", &[7; 5000], Put::Create).unwrap();
    let script = meddling(dir.path(), RESTLESS);
    let command = format!("exec python3 '{}' \"{server}\"", script.display());
    let store = SftpStore::open(&Location::Program(command), &Surroundings::default()).unwrap();
    for error in [store.get("d/a").unwrap_err(), store.read_at("d/a", 3000, &mut [0; 4000]).unwrap_err()] {
        assert!(error.to_string().contains("something different about it each time"), "{error}");
    }
    // So speaks one whose object is replaced without pause. What lies in each of them is read from the one that was
    // opened.
    let mut range = [0; 4000];
    store.read_at("d/a", 1000, &mut range).unwrap();
    assert_eq!(range, [7; 4000]);
}

/// A server that can't sync tells at the end that it has not kept what it took: nothing is named that may be short.
#[test]
fn what_is_told_when_a_file_is_closed_is_heard() {
    let dir = tempfile::tempdir().unwrap();
    if location(dir.path(), "").is_none() || !has_python() {
        return;
    }
    let script = meddling(dir.path(), REFUSING);
    for (number, options) in ["-P fsync", "-P fsync,posix-rename", "-P fsync,hardlink"].into_iter().enumerate() {
        let repo = new_folder(dir.path(), &format!("repo-{number}"));
        let store = SftpStore::create(&through(&script, &repo, options), &Surroundings::default()).unwrap();
        let upload = |name: &str, bytes: &[u8]| {
            let mut upload = store.upload(name, 0)?;
            upload.write(bytes)?;
            upload.finish()
        };
        let error = upload("data/1", &[b"full".repeat(100_000), vec![0; 100]].concat()).unwrap_err();
        assert!(error.to_string().contains("quota used"), "{options}: {error}");
        let error = store.put("d/a", b"full of it", Put::Create).unwrap_err();
        assert!(error.to_string().contains("quota used"), "{options}: {error}");
        upload("data/2", b"there is room for this").unwrap();
        drop(store);
        let mut listed = Vec::new();
        crate::LocalStore::open(&repo).unwrap().list("", &mut |l| listed.push(l.name)).unwrap();
        assert_eq!(listed, ["data/2"], "{options}");
        assert_eq!(std::fs::read_dir(repo.join("tmp")).unwrap().count(), 0, "{options}");
    }
}

/// Refuses to give files of `tmp/` the name `data/1`: such a request becomes one for what isn't there, whose answer
/// becomes a refusal.
const UNNAMING: &str = r#"
naming = set()

def heard(packet):
    named = packet[0] == 18 or packet[0] == 200 and (b"hardlink@" in packet or b"posix-rename@" in packet)
    if named and b"tmp/" in packet and packet.endswith(b"data/1"):
        naming.add(packet[1:5])
        packet = bytes([17]) + packet[1:5] + struct.pack(">I", 5) + b"/none"  # STAT
    return packet

def said(packet):
    if packet[1:5] in naming:
        naming.discard(packet[1:5])
        packet = bytes([101]) + packet[1:5] + struct.pack(">II", 3, 3) + b"no!" + struct.pack(">I", 0)
    return packet
"#;

/// What can't be given its name doesn't stay where it was written.
#[test]
fn what_is_refused_its_name_takes_no_room() {
    let dir = tempfile::tempdir().unwrap();
    if location(dir.path(), "").is_none() || !has_python() {
        return;
    }
    let script = meddling(dir.path(), UNNAMING);
    for (number, options) in ["", "-P hardlink", "-P posix-rename", "-P posix-rename,hardlink"].into_iter().enumerate()
    {
        let repo = new_folder(dir.path(), &format!("repo-{number}"));
        let store = SftpStore::create(&through(&script, &repo, options), &Surroundings::default()).unwrap();
        let upload = |name: &str| {
            let mut upload = store.upload(name, 0)?;
            upload.write(&vec![7; 700_000])?;
            upload.finish()
        };
        assert_eq!(upload("data/1").unwrap_err().kind, Kind::Refused, "{options}");
        upload("data/2").unwrap();
        drop(store);
        let mut listed = Vec::new();
        crate::LocalStore::open(&repo).unwrap().list("", &mut |l| listed.push(l.name)).unwrap();
        assert_eq!(listed, ["data/2"], "{options}");
        assert_eq!(std::fs::read_dir(repo.join("tmp")).unwrap().count(), 0, "{options}");
    }
}

/// Where the first connection is cut: after so many bytes of what the server hears, or of what it says. In the second
/// case it goes on with what it has heard, while the next connection is at work already.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Heard(usize),
    Said(usize),
}

/// A small run with the first connection cut, and whether an object that was put meanwhile is known to come late,
/// perhaps. `None`: it was cut before it was greeted.
fn survives(base: &Path, options: &str, cut: Cut) -> Option<bool> {
    let folder = new_folder(base, &format!("{cut:?}").replace(['(', ')'], "-"));
    let (repo, first) = (new_folder(&folder, "repo"), folder.join("first"));
    let server = format!("{SERVER} {options} -d '{}'", repo.display());
    let cutting = match cut {
        Cut::Heard(bytes) => format!("stdbuf -o0 head -c {bytes} | {server}"),
        // The shell would keep its output open.
        Cut::Said(bytes) => format!("{server} | {{ stdbuf -o0 head -c {bytes}; kill $$; }}"),
    };
    let command = format!("if mkdir '{}' 2>/dev/null; then {cutting}; else exec {server}; fi", first.display());
    let millis = std::time::Duration::from_millis;
    let retries = crate::Retries { first: millis(1), longest: millis(5), give_up: millis(20_000) };
    let around = Surroundings { retries, ..Surroundings::default() };
    let store = SftpStore::create(&Location::Program(command), &around).ok()?;
    let ok = |done: Result<()>| done.unwrap_or_else(|e| panic!("{cut:?}: {e}"));
    let upload = |name: &str, byte: u8, len: usize| {
        let mut upload = store.upload(name, 0)?;
        upload.write(&vec![byte; len])?;
        upload.finish()
    };
    ok(store.put("d/a", b"first", Put::Create));
    store.expect(Soon::Bytes { name: "e/c", bytes: b"c" });
    store.expect(Soon::Bytes { name: "e/never", bytes: b"never" });
    ok(upload("data/1", 7, 3000));
    assert_eq!(store.put("d/a", b"second", Put::Create).unwrap_err().kind, Kind::Exists, "{cut:?}");
    assert_eq!(upload("data/1", 8, 2000).unwrap_err().kind, Kind::Exists, "{cut:?}");
    ok(store.put("d/b", b"", Put::Create));
    ok(store.put("e/c", b"c", Put::Create));
    ok(upload("data/2", 9, 3000));
    ok(store.delete("e/c"));
    ok(store.sync());
    let is_late = ["d/a", "d/b", "e/c"].into_iter().any(|name| store.may_come_late(name));
    drop(store);
    let store = crate::LocalStore::open(&repo).unwrap();
    let mut listed = Vec::new();
    store.list("", &mut |l| listed.push((l.name, l.len))).unwrap();
    listed.sort();
    let expected = [("d/a", 5), ("d/b", 0), ("data/1", 3000), ("data/2", 3000)];
    assert_eq!(listed, expected.map(|(name, len)| (name.to_owned(), len)), "{cut:?}");
    assert_eq!(store.get("d/a").unwrap(), b"first", "{cut:?}");
    assert_eq!((store.get("data/1").unwrap(), store.get("data/2").unwrap()), (vec![7; 3000], vec![9; 3000]), "{cut:?}");
    std::fs::remove_dir_all(folder).unwrap();
    Some(is_late)
}

/// Wherever a connection breaks, before a request is heard or before its answer is, each call does what it says, once.
#[test]
fn a_cut_at_any_place_of_a_conversation_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    if location(dir.path(), "").is_none() {
        return;
    }
    // All ways to give a name: by a link, by a rename that never replaces, by both; without syncs, by a link or by an
    // empty file that is created first and then replaced, as well as it goes.
    let ways = [
        ("", 31),
        ("-P posix-rename", 131),
        ("-P hardlink,posix-rename", 131),
        ("-P hardlink", 131),
        ("-P fsync", 131),
        ("-P fsync,hardlink", 67),
        ("-P fsync,hardlink,posix-rename", 131),
    ];
    let mut runs = Vec::new();
    for (way, (options, step)) in ways.into_iter().enumerate() {
        let base = new_folder(dir.path(), &way.to_string());
        let said = (300..2600).step_by(step).map(Cut::Said);
        let heard = (10..14_000).step_by(step * 6).map(Cut::Heard);
        runs.extend(said.chain(heard).map(|cut| (base.clone(), options, cut)));
    }
    let (next, greeted, late) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((base, options, cut)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let survived = survives(base, options, *cut);
                    greeted.fetch_add(survived.is_some().into(), Ordering::Relaxed);
                    late.fetch_add((survived == Some(true)).into(), Ordering::Relaxed);
                }
            });
        }
    });
    assert!(greeted.into_inner() > runs.len() * 9 / 10, "most were cut too early");
    let late = late.into_inner();
    assert!(late > 0 && late < runs.len() / 2, "{late} of {} were cut while something was put", runs.len());
}
