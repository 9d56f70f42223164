//! Lines that break, stall, and servers that are killed: what was promised holds, and the rest goes on.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use drumlin_store::{Kind, Look, Put, Retries, Soon, Store};
use drumlin_testkit::{Line, Rng};

use crate::place::Place;

fn upload(store: &dyn Store, name: &str, bytes: &[u8]) -> drumlin_store::Result<()> {
    let mut upload = store.upload(name, bytes.len() as u64)?;
    for piece in bytes.chunks(100_000) {
        upload.write(piece)?;
    }
    upload.finish()
}

fn same(found: &[u8], expected: &[u8], what: &str) {
    assert!(found == expected, "{what} differs; {} and {} bytes", found.len(), expected.len());
}

/// Cut at many places of all that a small run does; each call succeeds, and everything is as it should be.
fn survives_cuts(account: &str, base: &str, seeds: std::ops::Range<u64>) {
    let Some(place) = Place::new() else { return };
    let large = Rng::new(1).bytes(30 << 20);
    for seed in seeds {
        let mut rng = Rng::new(seed);
        let store = place.create(account, &format!("{base}r{seed}"));
        let before = place.relay.connections();
        let passed: u64 = place.relay.bytes().0 + place.relay.bytes().1;
        // Some cuts early on, some within the large object.
        let mut cuts: Vec<u64> = (0..3).map(|_| passed + rng.below(20_000) as u64).collect();
        cuts.extend((0..3).map(|_| passed + rng.below(12 << 20) as u64));
        cuts.extend((0..3).map(|_| passed + rng.below(60 << 20) as u64));
        place.relay.cut_at(cuts);
        for i in 0..20 {
            let content = vec![i as u8; 1 + i * 1000];
            store.put(&format!("small/{i}"), &content, Put::Create).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            // The last ones are more than is written at once.
            upload(&store, &format!("packs/{i}"), &large[..1 + i * 60_000])
                .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        }
        upload(&store, "large/a", &large).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        store.sync().unwrap();
        for i in 0..20 {
            same(&store.get(&format!("small/{i}")).unwrap(), &vec![i as u8; 1 + i * 1000], "a small object");
            same(&store.get(&format!("packs/{i}")).unwrap(), &large[..1 + i * 60_000], "a small upload");
        }
        let mut names = Vec::new();
        store.list("", &mut |l| names.push(l.name)).unwrap();
        names.sort();
        assert_eq!(names.len(), 41, "seed {seed}: {names:?}");
        let mut range = vec![0; 5 << 20];
        store.read_at("large/a", 12_345_678, &mut range).unwrap();
        same(&range, &large[12_345_678..][..5 << 20], "a range");
        same(&store.get("large/a").unwrap(), &large, "the large object");
        assert!(place.relay.connections() > before, "seed {seed}: nothing was cut");
        place.relay.cut_at(Vec::new());
    }
}

#[test]
fn an_upload_goes_on_where_it_was() {
    survives_cuts("plain", "/~/", 0..6);
}

#[test]
fn an_upload_that_may_not_be_opened_again_goes_on_in_a_copy() {
    survives_cuts("publish", "/~/", 100..104);
}

#[test]
fn the_users_own_ssh_survives_cuts_too() {
    let Some(place) = Place::new() else { return };
    let mut around = place.around();
    let config = around.ssh_config.take().unwrap();
    around.ssh_command = Some(format!("ssh -F {} -o BatchMode=yes", config.display()));
    let location = place.location("plain", "/~/r");
    let store = drumlin_store::SftpStore::create(&location, &around).unwrap();
    let large = Rng::new(1).bytes(20 << 20);
    let passed = place.relay.bytes().0;
    place.relay.cut_at(vec![passed + (5 << 20), passed + (15 << 20)]);
    upload(&store, "a", &large).unwrap();
    same(&store.get("a").unwrap(), &large, "an object");
    assert!(place.relay.connections() >= 3);
}

/// Where an object can't be gone on with, that is told, and what is there of it is an object to nobody who asks.
#[test]
fn a_torn_object_is_told() {
    let Some(place) = Place::new() else { return };
    let store = place.create("append", "/~/r");
    place.relay.cut_at(vec![place.relay.bytes().0 + place.relay.bytes().1 + (10 << 20)]);
    let error = upload(&store, "data/a", &vec![7; 20 << 20]).unwrap_err();
    assert_eq!(error.kind, Kind::Io, "{error}");
    assert!(error.to_string().contains("may not continue an existing file"), "{error}");
    upload(&store, "data/b", &vec![7; 1 << 20]).unwrap();
}

#[test]
fn sessions_that_are_killed_are_replaced() {
    let Some(place) = Place::new() else { return };
    let store = place.create("plain", "/~/r");
    let bytes = Rng::new(2).bytes(24 << 20);
    let mut upload = store.upload("a", 0).unwrap();
    for (i, piece) in bytes.chunks(4 << 20).enumerate() {
        upload.write(piece).unwrap();
        if i % 2 == 1 {
            place.sshd.kill_sessions();
        }
    }
    place.sshd.kill_sessions();
    upload.finish().unwrap();
    place.sshd.kill_sessions();
    same(&store.get("a").unwrap(), &bytes, "an object");
}

#[test]
fn a_line_that_stalls_is_given_up_for_another() {
    let Some(place) = Place::with("ServerAliveInterval 1\nServerAliveCountMax 1") else { return };
    let store = place.create("plain", "/~/r");
    store.put("a", b"1", Put::Create).unwrap();
    place.relay.stall(true);
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(3));
            // What was held back belongs to connections that nobody has any more.
            place.relay.cut();
            place.relay.stall(false);
        });
        assert_eq!(store.get("a").unwrap(), b"1");
    });
    assert!(
        start.elapsed() > Duration::from_secs(2) && start.elapsed() < Duration::from_secs(15),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn patience_has_an_end_and_says_so() {
    let Some(place) = Place::new() else { return };
    let mut around = place.around();
    let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = told.clone();
    around.tell = Some(std::sync::Arc::new(move |words: &str| heard.lock().unwrap().push(words.to_owned())));
    let millis = Duration::from_millis;
    around.retries = Retries { first: millis(10), longest: millis(100), give_up: millis(700) };
    let store = drumlin_store::SftpStore::create(&place.location("plain", "/~/r"), &around).unwrap();
    let Place { relay, sshd, .. } = place;
    let port = relay.port();
    drop(relay);
    let error = store.get("a").unwrap_err();
    assert_eq!(error.kind, Kind::Transient, "{error}");
    let message = error.to_string();
    assert!(message.contains(&port.to_string()) && message.contains("tried again for"), "{message}");
    assert!(!told.lock().unwrap().is_empty());
    drop(sshd);
}

/// Far away and busy, more connections are opened; alone, one does.
#[test]
fn connections_come_with_the_work() {
    let Some(place) = Place::new() else { return };
    place.relay.set(Line::long(Duration::from_millis(30)));
    let store = place.create("plain", "/~/r");
    store.put("a", b"1", Put::Create).unwrap();
    assert_eq!(place.relay.connections(), 1);
    // One object alone goes over several of them.
    let bytes = Rng::new(3).bytes(64 << 20);
    upload(&store, "large", &bytes).unwrap();
    let connections = place.relay.connections();
    assert!((2..=4).contains(&connections), "{connections}");
    same(&store.get("large").unwrap(), &bytes, "an object");
}

/// The others go on, with what is on its way for the file as it was open before.
#[test]
fn one_of_several_connections_may_break() {
    let Some(place) = Place::new() else { return };
    // So slow that there is time to break one.
    place.relay.set(Line { up: 32 << 20, ..Line::long(Duration::from_millis(30)) });
    let store = place.create("plain", "/~/r");
    for is_newest in [true, false] {
        let (name, bytes) = (format!("data/{is_newest}"), Rng::new(u64::from(is_newest)).bytes(96 << 20));
        let sent = || place.relay.bytes().0;
        let before = sent();
        thread::scope(|scope| {
            let uploading = scope.spawn(|| upload(&store, &name, &bytes));
            while sent() - before < 40 << 20 && !uploading.is_finished() {
                thread::sleep(Duration::from_millis(1));
            }
            assert!(!uploading.is_finished() && place.relay.connections() > 1);
            assert!(place.relay.cut_one(is_newest));
            uploading.join().unwrap().unwrap();
        });
        same(&store.get(&name).unwrap(), &bytes, &name);
    }
}

/// As few round trips as the protocol allows, counted.
#[test]
fn calls_take_few_round_trips() {
    let Some(place) = Place::new() else { return };
    place.relay.set(Line::long(Duration::from_millis(10)));
    let store = place.create("plain", "/~/r");
    for name in ["d/a", "e/a", "f/a"] {
        store.put(name, b"1", Put::Create).unwrap();
    }
    // Each is the number of times that somebody has to wait for an answer before he can ask on.
    // Who is held up between two requests may have the first one's answer before the second: the fewest of some count.
    let turns = |most: u64, what: &str, prepare: &dyn Fn(&str), call: &dyn Fn(&str)| {
        let tries: Vec<u64> = (0..5)
            .map(|n| {
                let name = format!("d/{}-{n}", what.replace(' ', "-"));
                prepare(&name);
                let before = place.relay.turns();
                call(&name);
                place.relay.turns() - before
            })
            .collect();
        assert!(tries.iter().any(|turns| *turns <= most), "{what}: {tries:?}");
    };
    let put = |name: &str| store.put(name, b"1", Put::Create).unwrap();
    let nothing = |_: &str| ();
    turns(1, "get", &nothing, &|_| drop(store.get("d/a").unwrap()));
    turns(1, "len", &nothing, &|_| assert!(store.len("d/a").unwrap().is_some()));
    // Written, synced and closed along with being created; and named.
    turns(2, "put", &nothing, &put);
    let looks = [Look::Empty("none"), Look::Listing("e"), Look::Listing("f"), Look::Length("f/a"), Look::Length("f/b")];
    let put_and_look = |name: &str| store.put_and_look(name, b"1", &looks).unwrap();
    turns(2, "put and look", &nothing, &put_and_look);
    turns(0, "what was seen behind a put", &put_and_look, &|_| {
        store.list("none", &mut |_| unreachable!()).unwrap();
        store.list_in_order(&["e", "f"], &mut |_, _| ()).unwrap();
        assert_eq!((store.len("f/a").unwrap(), store.len("f/b").unwrap()), (Some(1), None));
    });
    turns(1, "list", &nothing, &|_| store.list("d", &mut |_| ()).unwrap());
    // Of what is no longer than some pieces nothing is asked for until it is whole.
    let bytes = Rng::new(4).bytes(1 << 20);
    turns(2, "upload of a piece", &nothing, &|name| upload(&store, name, &bytes[..250_000]).unwrap());
    turns(2, "upload of some pieces", &nothing, &|name| upload(&store, name, &bytes[..1_000_000]).unwrap());
    turns(3, "upload of more", &nothing, &|name| upload(&store, name, &bytes).unwrap());
    turns(0, "upload that is given up", &nothing, &|name| {
        store.upload(name, 0).unwrap().write(&bytes[..1_000_000]).unwrap();
    });
    turns(1, "delete", &put, &|name| store.delete(name).unwrap());
    turns(1, "sync", &put, &|_| store.sync().unwrap());
    turns(1, "read_at", &put, &|name| store.read_at(name, 0, &mut [0]).unwrap());
    turns(1, "read_at again", &nothing, &|_| store.read_at("e/a", 0, &mut [0]).unwrap());
    turns(1, "list_in_order", &nothing, &|_| store.list_in_order(&["e", "none", "d"], &mut |_, _| ()).unwrap());
    let announce = |name: &str| {
        store.expect(Soon::Bytes { name, bytes: b"1" });
        thread::sleep(Duration::from_millis(300));
    };
    turns(1, "put of what was announced", &announce, &put);
}

/// What is written before its file's handle is known gets where it belongs, also if the guess was wrong because
/// somebody else's opening failed.
#[test]
fn what_is_written_at_once_is_whole_whatever_others_open() {
    let Some(place) = Place::new() else { return };
    place.relay.set(Line::long(Duration::from_millis(4)));
    drop(place.create("plain", "/~/r"));
    for round in 0..12 {
        let store = place.open("plain", "/~/r").unwrap();
        let (is_over, start) = (AtomicU64::new(0), Instant::now());
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while is_over.load(Ordering::Relaxed) == 0 && start.elapsed() < Duration::from_secs(20) {
                        assert_eq!(store.read_at("none/x", 0, &mut [0]).unwrap_err().kind, Kind::Missing);
                    }
                });
            }
            for n in 0..12 {
                let name = format!("d/{round}-{n}");
                store.put(&name, name.as_bytes(), Put::Create).unwrap();
                assert_eq!(store.get(&name).unwrap(), name.as_bytes());
                let (pack, bytes) =
                    (format!("packs/{round}-{n}"), Rng::new(n).bytes(if n % 3 == 0 { 900_000 } else { 10 }));
                upload(&store, &pack, &bytes).unwrap();
                assert_eq!(store.get(&pack).unwrap(), bytes);
            }
            is_over.store(1, Ordering::Relaxed);
        });
    }
    let left = || fs::read_dir(place.sshd.folder("plain").join("r/tmp")).unwrap().count();
    let start = Instant::now();
    while left() > 0 {
        assert!(start.elapsed() < Duration::from_secs(10), "{} are left", left());
        thread::sleep(Duration::from_millis(20));
    }
}

/// Cut anywhere between an object's file and the last answer behind its naming: it is put once, and whatever is given
/// out later is so.
#[test]
fn a_cut_behind_a_put_leaves_nothing_that_is_not_so() {
    let Some(place) = Place::new() else { return };
    let store = place.create("plain", "/~/r");
    store.put("e/a", b"12", Put::Create).unwrap();
    let passed = || place.relay.bytes().0 + place.relay.bytes().1;
    let (mut at, mut put) = (0, 0);
    loop {
        let (before, connections) = (passed(), place.relay.connections());
        place.relay.cut_at(vec![before + at]);
        let name = format!("d/{put:04}");
        store.put_and_look(&name, b"1", &[Look::Empty("empty"), Look::Listing("d"), Look::Length("e/a")]).unwrap();
        place.relay.cut_at(Vec::new());
        put += 1;
        let (mut empty, mut listed) = (0, Vec::new());
        store.list("empty", &mut |_| empty += 1).unwrap();
        store.list("d", &mut |object| listed.push((object.name, object.len))).unwrap();
        listed.sort();
        let expected: Vec<_> = (0..put).map(|n| (format!("d/{n:04}"), 1)).collect();
        assert_eq!((empty, store.len("e/a").unwrap(), listed), (0, Some(2), expected), "cut at {at}");
        if place.relay.connections() == connections {
            break;
        }
        at += 61;
    }
    assert!(put > 10, "{put} cuts");
}

/// An upload whose file can't be created, once more has come than is written at once, is over: nobody goes on after the
/// gap.
#[test]
fn an_upload_that_can_not_be_begun_is_over() {
    let Some(place) = Place::new() else { return };
    let store = place.create("plain", "/~/r");
    store.put("a", b"1", Put::Create).unwrap();
    let tmp = place.sshd.folder("plain").join("r/tmp");
    for goes_on in [false, true] {
        let mut upload = store.upload("data/1", 0).unwrap();
        fs::remove_dir_all(&tmp).unwrap();
        fs::write(&tmp, "no folder").unwrap();
        let error = upload.write(&vec![7; 2 << 20]).unwrap_err();
        fs::remove_file(&tmp).unwrap();
        fs::create_dir(&tmp).unwrap();
        if goes_on {
            assert_eq!(upload.write(b"more").unwrap_err().kind, error.kind);
        }
        assert_eq!(upload.finish().unwrap_err().kind, error.kind);
        assert_eq!(store.len("data/1").unwrap(), None, "a part was named");
    }
    // The same of one that is no longer than that.
    let mut upload = store.upload("data/2", 0).unwrap();
    upload.write(&[7; 700_000]).unwrap();
    fs::remove_dir_all(&tmp).unwrap();
    upload.finish().unwrap();
    assert_eq!(store.len("data/2").unwrap(), Some(700_000), "the folder is made anew");
}

/// What comes slowly is not held back until all of it is there.
#[test]
fn what_comes_slowly_is_sent_as_it_comes() {
    let Some(place) = Place::new() else { return };
    let store = place.create("plain", "/~/r");
    store.put("a", b"1", Put::Create).unwrap();
    let sent = || place.relay.bytes().0;
    let mut upload = store.upload("data/1", 0).unwrap();
    let before = sent();
    for _ in 0..4 {
        upload.write(&Rng::new(1).bytes(200_000)).unwrap();
        thread::sleep(Duration::from_millis(300));
    }
    assert!(sent() - before > 400_000, "{} bytes", sent() - before);
    upload.finish().unwrap();
    assert_eq!(store.len("data/1").unwrap(), Some(800_000));
}

/// Nor does what fills a line at once wait for its producer to go on.
#[test]
fn what_is_written_is_sent_though_nothing_follows() {
    let Some(place) = Place::new() else { return };
    place.relay.set(Line { up: 4 << 20, ..Line::long(Duration::from_millis(20)) });
    let store = place.create("plain", "/~/r");
    let bytes = Rng::new(2).bytes(14 << 20);
    let sent = || place.relay.bytes().0;
    let mut upload = store.upload("data/1", 0).unwrap();
    let (before, begun) = (sent(), Instant::now());
    upload.write(&bytes).unwrap();
    while sent() - before < 13 << 20 && begun.elapsed() < Duration::from_secs(30) {
        thread::sleep(Duration::from_millis(50));
    }
    assert!(sent() - before >= 13 << 20, "{} bytes", sent() - before);
    upload.finish().unwrap();
    same(&store.get("data/1").unwrap(), &bytes, "an object");
}

/// What is seen behind a put is given once, and nothing of it where the folder that should be empty isn't, or something
/// was put since.
#[test]
fn what_is_seen_behind_a_put_is_given_once() {
    let Some(place) = Place::new() else { return };
    let (store, other) = (place.create("plain", "/~/r"), place.create("plain", "/~/r"));
    let put = |name: &str| other.put(name, b"1", Put::Create).unwrap();
    ["full/a", "e/a"].into_iter().for_each(put);
    let seen = |folder: &str| {
        let mut seen = Vec::new();
        store.list(folder, &mut |listed| seen.push(listed.name)).unwrap();
        seen.sort_unstable();
        seen
    };
    store.put_and_look("d/1", b"1", &[Look::Empty("empty"), Look::Listing("e"), Look::Length("e/b")]).unwrap();
    ["e/b", "empty/a"].into_iter().for_each(put);
    assert_eq!((seen("empty"), seen("e"), store.len("e/b").unwrap()), (vec![], vec!["e/a".into()], None), "as it was");
    assert_eq!((seen("empty").len(), seen("e").len(), store.len("e/b").unwrap()), (1, 2, Some(1)), "as it is");
    store.put_and_look("d/2", b"1", &[Look::Empty("full"), Look::Listing("e"), Look::Length("e/c")]).unwrap();
    ["full/b", "e/c"].into_iter().for_each(put);
    assert_eq!(seen("full").len(), 1, "as it was");
    assert_eq!((seen("e").len(), store.len("e/c").unwrap()), (3, Some(1)), "nobody may look before that was read");
    // It is older than what was put, uploaded or removed since.
    let then: [&dyn Fn(); 3] = [
        &|| store.put("d/4", b"1", Put::Create).unwrap(),
        &|| store.upload("d/u", 1).unwrap().finish().unwrap(),
        &|| store.delete("d/u").unwrap(),
    ];
    for (round, then) in then.into_iter().enumerate() {
        let new = format!("e/d-{round}");
        store.put_and_look(&format!("d/3-{round}"), b"1", &[Look::Listing("e"), Look::Length(&new)]).unwrap();
        put(&new);
        then();
        assert_eq!((seen("e").len(), store.len(&new).unwrap()), (4 + round, Some(1)), "{round}");
    }
    let error = store.put_and_look("d/4", b"2", &[Look::Listing("e")]).unwrap_err();
    assert_eq!(error.kind, Kind::Exists);
    put("e/e");
    assert_eq!((seen("e").len(), store.get("d/4").unwrap()), (7, b"1".to_vec()));
    // A folder with folders below it is not seen at one moment.
    store.put_and_look("d/5", b"1", &[Look::Listing(""), Look::Length("e/f")]).unwrap();
    put("e/f");
    assert!(seen("").contains(&"e/f".to_owned()) && store.len("e/f").unwrap().is_some());
}

/// What is wanted first comes along with the server's greeting, and what can't be had so is asked for as usual.
#[test]
fn what_is_read_first_takes_no_round_trip() {
    let Some(place) = Place::new() else { return };
    let (store, root) = (place.create("plain", "/~/r"), place.sshd.folder("plain").join("r"));
    let large = Rng::new(7).bytes(40_000);
    for (name, bytes) in [("config", &b"one"[..]), ("keys/a", b"two"), ("large", &large), ("empty", b"")] {
        store.put(name, bytes, Put::Create).unwrap();
    }
    std::os::unix::fs::symlink("config", root.join("link")).unwrap();
    drop(store);
    place.relay.set(Line::long(Duration::from_millis(10)));
    let open = |first: &[&str]| {
        let first = first.iter().map(|name| (*name).to_owned()).collect();
        let around = drumlin_store::Surroundings { first, ..place.around() };
        drumlin_store::SftpStore::open(&place.location("plain", "/~/r"), &around).unwrap()
    };
    // What is waited for until both are there: who is held up between two requests waits longer, so the least of some
    // count.
    let waits = |first: &[&str]| {
        let wait = |_| {
            let before = place.relay.travelled();
            let store = open(first);
            let both = (store.get("config").unwrap(), store.get("keys/a").unwrap());
            assert_eq!(both, (b"one".to_vec(), b"two".to_vec()));
            place.relay.travelled() - before
        };
        (0..5).map(wait).min().unwrap()
    };
    let (early, usual) = (waits(&["config", "keys/a"]), waits(&[]));
    assert!(early + Duration::from_millis(15) <= usual, "two round trips less: {early:?} {usual:?}");
    let store = open(&["config", "keys/a"]);
    store.get("config").unwrap();
    store.get("keys/a").unwrap();
    // But once, and it says nothing of what was put or removed since.
    fs::remove_file(root.join("keys/a")).unwrap();
    assert_eq!(store.get("keys/a").unwrap_err().kind, Kind::Missing);
    let store = open(&["config", "large"]);
    store.put("config", b"another", Put::Replace).unwrap();
    store.delete("large").unwrap();
    assert_eq!(store.get("config").unwrap(), b"another");
    assert_eq!(store.get("large").unwrap_err().kind, Kind::Missing);
    store.put("large", &large, Put::Create).unwrap();
    // What isn't there, is no file, is empty or longer than is asked for.
    let store = open(&["none", "link", "keys", "large"]);
    assert_eq!(store.get("none").unwrap_err().kind, Kind::Missing);
    assert!(store.get("link").is_err() && store.get("keys").is_err());
    same(&store.get("large").unwrap(), &large, "a large object");
    let store = open(&["none", "empty", "config", "config", "one", "too", "many"]);
    assert_eq!((store.get("empty").unwrap(), store.get("config").unwrap()), (Vec::new(), b"another".to_vec()));
    // And the connection is as good as any.
    store.put("d/e", b"3", Put::Create).unwrap();
    assert_eq!(store.get("d/e").unwrap(), b"3");
}

/// The second folder is read when the first has been, though both are asked for over a line on which a hundred objects
/// come between; also if the first is too long to be read at once.
#[test]
fn folders_are_listed_in_their_order_over_a_long_line() {
    let Some(place) = Place::new() else { return };
    for (folder, old) in [("short", 0), ("long", 400)] {
        place.relay.set(Line::long(Duration::ZERO));
        let store = place.create("plain", &format!("/~/{folder}"));
        for name in ["first/0", "second/0"] {
            store.put(name, b"1", Put::Create).unwrap();
        }
        let root = place.sshd.folder("plain").join(folder);
        (0..old).for_each(|i| fs::write(root.join(format!("first/old-{i}")), b"0").unwrap());
        place.relay.set(Line::long(Duration::from_millis(20)));
        let (looks, mut fewest) = (AtomicU64::new(0), u64::MAX);
        thread::scope(|scope| {
            // Who looks through another door isn't slowed down by the line.
            let putting = scope.spawn(|| {
                for i in 1..20_000 {
                    if i >= 250 && looks.load(Ordering::Relaxed) >= 5 {
                        break;
                    }
                    fs::write(root.join(format!("second/{i}")), b"2").unwrap();
                    fs::write(root.join(format!("first/{i}")), b"1").unwrap();
                    thread::sleep(Duration::from_millis(if old > 0 { 6 } else { 2 }));
                }
            });
            while !putting.is_finished() {
                let before = place.relay.turns();
                let mut seen = [BTreeSet::new(), BTreeSet::new()];
                let see = &mut |at: usize, listed: drumlin_store::Listed| {
                    assert!(seen[at].insert(listed.name.rsplit('/').next().unwrap_or_default().to_owned()));
                };
                store.list_in_order(&["first", "second"], see).unwrap();
                let [mut first, second] = seen;
                first.retain(|name| !name.starts_with("old"));
                assert!(
                    first.is_subset(&second),
                    "{folder}, look {looks:?}: the second folder was seen before the first"
                );
                fewest = fewest.min(place.relay.turns() - before);
                looks.fetch_add(1, Ordering::Relaxed);
            }
        });
        let looks = looks.into_inner();
        assert!(looks >= 5 && fewest <= if old > 0 { 8 } else { 1 }, "{folder}: {looks} looks, {fewest} turns");
    }
}

/// Whatever is read of several folders at once is given out as what it is: short ones, long ones, some with folders in
/// them, some that are not there.
#[test]
fn folders_of_any_length_are_not_mixed_up() {
    let Some(place) = Place::new() else { return };
    let store = place.create("plain", "/~/r");
    store.put("nested/0", b"1", Put::Create).unwrap();
    let root = place.sshd.folder("plain").join("r");
    let folders = [("nested", 3), ("nested/below", 2), ("long", 400), ("short", 5), ("full", 298)];
    for (folder, count) in folders {
        fs::create_dir_all(root.join(folder)).unwrap();
        (0..count)
            .for_each(|i| fs::write(root.join(folder).join(format!("{folder}-{i}").replace('/', "-")), b"1").unwrap());
    }
    let count = |folder: &str| match folder {
        "nested" => 1 + 3 + 2,
        other => folders.iter().find(|(name, _)| *name == other).map_or(0, |(_, count)| *count),
    };
    let names = ["nested", "long", "none", "short", "full"];
    for turn in 0..names.len() {
        for skip in 1..names.len() {
            let asked: Vec<&str> = (0..4).map(|i| names[(turn + i * skip) % names.len()]).collect();
            let mut found = vec![0; asked.len()];
            let see = &mut |at: usize, listed: drumlin_store::Listed| {
                assert_eq!(listed.name.split('/').next(), Some(asked[at]), "{asked:?}");
                found[at] += 1;
            };
            store.list_in_order(&asked, see).unwrap();
            assert_eq!(found, asked.iter().map(|folder| count(folder)).collect::<Vec<_>>(), "{asked:?}");
        }
    }
}

#[test]
fn limits_of_speed_are_kept() {
    let Some(place) = Place::new() else { return };
    let mut around = place.around();
    (around.upload_limit, around.download_limit) = (Some(4_000_000), Some(8_000_000));
    let store = drumlin_store::SftpStore::create(&place.location("plain", "/~/r"), &around).unwrap();
    let bytes = Rng::new(4).bytes(6_000_000);
    let start = Instant::now();
    upload(&store, "a", &bytes).unwrap();
    let up = start.elapsed().as_secs_f64();
    let start = Instant::now();
    same(&store.get("a").unwrap(), &bytes, "an object");
    let down = start.elapsed().as_secs_f64();
    assert!(up > 1.2 && down > 0.6, "{up} {down}");
}
