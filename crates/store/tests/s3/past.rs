//! A bucket as it was: from the versions that it keeps.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use drumlin_store::{Kind, Location, Put, Soon, Store, Surroundings};
use drumlin_testkit::Bucket;
use drumlin_testkit::s3::{BUCKET, Habits, S3};

use crate::place::{User, address};

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed()
}

fn at(user: &User, bucket: &str, time: i64) -> Box<dyn Store> {
    let around = Surroundings { as_of: Some(time), ..user.around.clone() };
    drumlin_store::open(&Location::S3(address(bucket, "p")), &around).unwrap()
}

fn upload(store: &dyn Store, name: &str, bytes: &[u8]) {
    let mut upload = store.upload(name, 0).unwrap();
    upload.write(bytes).unwrap();
    upload.finish().unwrap();
}

fn listed(store: &dyn Store, folder: &str) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    store.list(folder, &mut |listed| found.push((listed.name, listed.len))).unwrap();
    found
}

/// Each name with what it had then; all names that there ever were.
fn shows(store: &dyn Store, what: &[(&str, Option<&[u8]>)]) {
    let there = |(name, bytes): &(&str, Option<&[u8]>)| Some(((*name).to_owned(), bytes.as_ref()?.len() as u64));
    assert_eq!(listed(store, ""), what.iter().filter_map(there).collect::<Vec<_>>());
    for (name, bytes) in what {
        assert_eq!(store.len(name).unwrap(), bytes.map(|bytes| bytes.len() as u64), "{name}");
        store.expect(Soon::Object(name));
        match bytes {
            Some(bytes) => {
                assert_eq!(store.get(name).unwrap(), *bytes, "{name}");
                store.expect(Soon::Range { name, offset: 1, len: bytes.len() - 1 });
                for _ in 0..2 {
                    let mut range = vec![0; bytes.len() - 1];
                    store.read_at(name, 1, &mut range).unwrap();
                    assert_eq!(range, bytes[1..], "{name}");
                }
                let error = store.read_at(name, 1, &mut vec![0; bytes.len()]).unwrap_err();
                assert_eq!(error.kind, Kind::Truncated, "{error}");
                store.read_at(name, bytes.len() as u64, &mut []).unwrap();
            }
            None => {
                assert_eq!(store.get(name).unwrap_err().kind, Kind::Missing, "{name}");
                assert_eq!(store.read_at(name, 0, &mut [0]).unwrap_err().kind, Kind::Missing, "{name}");
            }
        }
    }
}

#[test]
fn what_was_there_is_shown() {
    for page in [None, Some(1), Some(3)] {
        let server = S3::with(Habits { versions: true, page, ..Habits::default() });
        let user = User::at(&server);
        let store = user.create("p");
        let start = now();
        let large = vec![7; 11 << 20];
        store.put("a", b"first", Put::Create).unwrap();
        store.put("d/b", b"second", Put::Create).unwrap();
        server.set("other/a", b"another program's");
        server.set("p/not a name", b"another program's");
        server.habits(|habits| habits.clock_ahead = 1000);
        store.put("a", b"replaced", Put::Replace).unwrap();
        store.delete("d/b").unwrap();
        upload(&store, "d/c", &large);
        server.habits(|habits| habits.clock_ahead = 2000);
        store.delete("a").unwrap();
        store.put("d/b", b"anew", Put::Create).unwrap();
        // All in one second: the last counts.
        store.delete("d/c").unwrap();
        store.put("d/c", b"of one", Put::Create).unwrap();
        store.delete("d/c").unwrap();
        store.put("d/c", b"second", Put::Create).unwrap();

        let seen = |time: i64, what: &[(&str, Option<&[u8]>)]| shows(&*at(&user, BUCKET, time), what);
        seen(start - 10, &[("a", None), ("d/b", None), ("d/c", None)]);
        seen(start + 500, &[("a", Some(b"first")), ("d/b", Some(b"second")), ("d/c", None)]);
        seen(start + 1500, &[("a", Some(b"replaced")), ("d/b", None), ("d/c", Some(&large))]);
        seen(start + 2500, &[("a", None), ("d/b", Some(b"anew")), ("d/c", Some(b"second"))]);
        assert_eq!(listed(&*at(&user, BUCKET, start + 1500), "d"), [("d/c".to_owned(), large.len() as u64)]);
    }
}

#[test]
fn nothing_can_be_changed_there() {
    let server = S3::with(Habits { versions: true, ..Habits::default() });
    let user = User::at(&server);
    user.create("p").put("a", b"1", Put::Create).unwrap();
    let past = at(&user, BUCKET, now() + 10);
    let before = server.keys();
    for error in [
        past.put("b", b"2", Put::Create).unwrap_err(),
        past.put("a", b"2", Put::Replace).unwrap_err(),
        past.upload("b", 0).err().unwrap(),
        past.delete("a").unwrap_err(),
    ] {
        assert!(error.kind == Kind::Refused && error.to_string().contains("shown as it was at"), "{error}");
    }
    past.clear_unfinished().unwrap();
    assert!(server.keys() == before && server.object("p/a").unwrap() == b"1");
    // By what was found out then, whether it can be tried now or not.
    assert!(past.creates_atomically().unwrap());
    let careless = S3::with(Habits { versions: true, ignores_conditions: true, ..Habits::default() });
    let user = User::at(&careless);
    user.create("p");
    assert!(!at(&user, BUCKET, now() + 10).creates_atomically().unwrap());
}

#[test]
fn what_keeps_no_versions_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let around = Surroundings { as_of: Some(now()), ..Surroundings::default() };
    for location in [folder.path().to_path_buf().into(), Location::Program("cat".into())] {
        let error = drumlin_store::open(&location, &around).err().unwrap();
        assert!(error.kind == Kind::Refused && error.to_string().contains("only a bucket keeps versions"), "{error}");
    }
    let server = S3::with(Habits { versions: true, ..Habits::default() });
    let user = User::at(&server);
    user.create("p");
    server.habits(|habits| habits.forbidden = ["ListBucketVersions"].into());
    let error = at(&user, BUCKET, now()).get("config").unwrap_err();
    assert!(error.kind == Kind::Refused && error.to_string().contains("ListBucketVersions"), "{error}");
}

#[test]
fn real_servers() {
    for bucket in Bucket::all() {
        let variables = bucket.variables();
        let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let user = User::of(bucket.endpoint(), &variables);
        let Some(kept) = bucket.versioned() else { continue };
        let store = user.create_in(kept, "p").unwrap_or_else(|e| panic!("{}: {e}", bucket.server()));
        let pause = || std::thread::sleep(Duration::from_millis(2100));
        store.put("a", b"first", Put::Create).unwrap();
        upload(&store, "d/b", &vec![7; 11 << 20]);
        pause();
        let then = now() - 1;
        store.put("a", b"replaced", Put::Replace).unwrap();
        store.delete("d/b").unwrap();
        store.put("d/c", b"third", Put::Create).unwrap();
        pause();
        let later = now() - 1;
        store.put("d/c", b"replaced", Put::Replace).unwrap();
        shows(&*at(&user, kept, then), &[("a", Some(b"first")), ("d/b", Some(&vec![7; 11 << 20])), ("d/c", None)]);
        shows(&*at(&user, kept, later), &[("a", Some(b"replaced")), ("d/b", None), ("d/c", Some(b"third"))]);
        eprintln!("{} shows what was", bucket.server());
    }
}
