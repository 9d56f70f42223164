//! Object lock: what is made, for how long nobody can remove it, and how that is begun anew.

use drumlin_store::{Kind, ObjectLock, Put, Store};
use drumlin_testkit::Bucket;
use drumlin_testkit::s3::{Habits, Instead, S3};

use crate::place::{User, address};

const MIB: usize = 1 << 20;
const DAY: i64 = 86_400;

fn locking(user: User, lock: &str) -> User {
    let lock: ObjectLock = lock.parse().unwrap();
    let around =
        drumlin_store::Surroundings { object_lock: Some((lock, vec!["config".into(), "data".into()])), ..user.around };
    User { around, ..user }
}

fn upload(store: &dyn Store, name: &str, bytes: usize) {
    let mut upload = store.upload(name, 0).unwrap();
    upload.write(&vec![1; bytes]).unwrap();
    upload.finish().unwrap();
}

#[test]
fn what_is_to_last_is_locked_and_begun_anew() {
    let server = S3::with(Habits { locks: true, ..Habits::default() });
    let user = locking(User::at(&server), "30");
    let store = user.create("p");
    store.put("config", b"1", Put::Create).unwrap();
    store.put("sessions/x", b"1", Put::Create).unwrap();
    upload(&store, "data/small", 9);
    upload(&store, "data/large", 11 * MIB);
    upload(&store, "tree/large", 11 * MIB);
    let lock = |name: &str| server.lock_of(&format!("p/{name}"));
    for name in ["config", "data/small", "data/large"] {
        assert_eq!(lock(name).unwrap().0, "GOVERNANCE", "{name}");
    }
    for name in ["sessions/x", "tree/large", "tmp/once"] {
        assert_eq!(lock(name), None, "{name}");
    }

    // A month and half a month: seen by the end of the config's time, and asked for without anything that is locked for
    // less.
    assert!(!store.retention_ends_soon("config").unwrap());
    let before = lock("data/large").unwrap().1;
    server.habits(|habits| habits.clock_ahead = 16 * DAY);
    assert!(store.retention_ends_soon("config").unwrap());
    store.retain("data/large").unwrap();
    assert!(lock("data/large").unwrap().1 > before);
    assert!(!store.retention_ends_soon("data/large").unwrap());
    store.retain("data/none").unwrap();
    store.retain("sessions/x").unwrap();
    assert_eq!(lock("sessions/x"), None);

    // What is locked for longer stays so.
    let longest = lock("data/large").unwrap().1;
    locking(User::at(&server), "3").open("p").retain("data/large").unwrap();
    assert_eq!(lock("data/large").unwrap().1, longest);
    let strict = locking(User::at(&server), "compliance:300").open("p");
    strict.retain("data/small").unwrap();
    assert_eq!(lock("data/small").unwrap().0, "COMPLIANCE");
    // Who asks for more, or for it more strictly, doesn't have to wait for half of the time.
    store.retain("config").unwrap();
    assert!(!store.retention_ends_soon("config").unwrap());
    for (asked, soon) in [("45", false), ("70", true), ("compliance:30", true)] {
        let asking = locking(User::at(&server), asked).open("p");
        assert_eq!(asking.retention_ends_soon("config").unwrap(), soon, "{asked}");
    }
    server.habits(|habits| habits.forbidden = ["PutObjectRetention"].into());
    let refused = strict.retain("config").unwrap_err();
    assert!(refused.kind == Kind::Refused && refused.to_string().contains("PutObjectRetention"), "{refused}");
}

#[test]
fn what_is_put_in_parts_is_locked_by_servers_that_forget_it_too() {
    let server = S3::with(Habits { locks: true, forgets_locks: true, ..Habits::default() });
    let store = locking(User::at(&server), "30").create("p");
    upload(&store, "data/large", 11 * MIB);
    assert_eq!(server.lock_of("p/data/large").unwrap().0, "GOVERNANCE");
}

#[test]
fn a_bucket_without_it_is_told() {
    let server = S3::start();
    let user = locking(User::at(&server), "30");
    let store = user.create("p");
    let refused = store.put("config", b"1", Put::Create).unwrap_err();
    assert!(refused.to_string().contains("object lock"), "{refused}");
}

#[test]
fn real_servers() {
    for bucket in Bucket::all() {
        let Some(locked) = bucket.locked() else { continue };
        let variables = bucket.variables();
        let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let user = locking(User::of(bucket.endpoint(), &variables), "governance:2");
        let store = user.create_in(locked, "p").unwrap_or_else(|e| panic!("{}: {e}", bucket.server()));
        store.put("config", b"1", Put::Create).unwrap();
        upload(&store, "data/small", 9);
        upload(&store, "data/large", 11 * MIB);
        for name in ["config", "data/small", "data/large"] {
            assert!(!store.retention_ends_soon(name).unwrap(), "{}: {name}", bucket.server());
        }
        let longer = locking(User::of(bucket.endpoint(), &variables), "governance:9");
        let longer = drumlin_store::S3Store::open(&address(locked, "p"), &longer.around).unwrap();
        assert!(longer.retention_ends_soon("data/large").unwrap());
        longer.retain("data/large").unwrap();
        assert!(!longer.retention_ends_soon("data/large").unwrap(), "{}", bucket.server());
        let strict = locking(User::of(bucket.endpoint(), &variables), "compliance:9");
        let strict = drumlin_store::S3Store::open(&address(locked, "p"), &strict.around).unwrap();
        assert!(strict.retention_ends_soon("data/large").unwrap(), "{}", bucket.server());
        // A removal hides it; its name is free again, as a prune needs it.
        store.delete("data/small").unwrap();
        assert_eq!(store.len("data/small").unwrap(), None);
        eprintln!("{} locks", bucket.server());
    }
}

/// Whoever made the bucket has given it a default retention: it takes nothing without a sum, and nobody has asked for a
/// lock.
#[test]
fn a_bucket_that_locks_by_itself() {
    let server = S3::with(Habits { locks: true, demands_sums: true, ..Habits::default() });
    let user = User::at(&server);
    let store = user.create("p");
    store.put("config", b"1", Put::Create).unwrap();
    upload(&store, "data/large", 23 * MIB);
    assert_eq!(store.len("data/large").unwrap(), Some(23 << 20));
    // One that begins with a large object.
    let store = user.open("p");
    upload(&store, "data/larger", 24 * MIB);
    assert_eq!(store.len("data/larger").unwrap(), Some(24 << 20));
}

/// An object that was removed meanwhile needs no lock, whatever the server calls that; one that is there does.
#[test]
fn a_lock_of_what_is_gone() {
    let server = S3::with(Habits { locks: true, ..Habits::default() });
    let store = locking(User::at(&server), "30").create("p");
    store.put("config", b"1", Put::Create).unwrap();
    server.habits(|habits| habits.clock_ahead = 16 * DAY);
    server.instead("PutObjectRetention", 0, 2, Instead::Refuse(405, "MethodNotAllowed"));
    store.retain("data/none").unwrap();
    let refused = store.retain("config").unwrap_err();
    assert!(refused.to_string().contains("MethodNotAllowed"), "{refused}");
    store.retain("config").unwrap();
    assert!(!store.retention_ends_soon("config").unwrap());
}
