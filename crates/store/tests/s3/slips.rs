//! What goes wrong for good, told with what to do about it.

use std::collections::HashSet;

use drumlin_store::{Action, Haste, Kind, Put, Store, Surroundings, Thaw};
use drumlin_testkit::s3::{Habits, Instead, KEYS, S3};
use drumlin_testkit::{Line, Relay};
use std::time::Duration;

use crate::place::User;

const MIB: usize = 1 << 20;

/// An error of this kind with these words, and with no secret in it.
fn says<T>(result: Result<T, drumlin_store::Error>, kind: Kind, parts: &[&str]) {
    let Err(error) = result else { panic!("it succeeded, where {parts:?} was to be said") };
    assert_eq!(error.kind, kind, "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    let all = format!("{error} {error:?}");
    assert!(!all.contains(KEYS.1) && !all.contains("geheim"), "{all}");
}

#[test]
fn credentials_that_are_wrong() {
    let server = S3::start();
    let get = |variables: &[(&str, &str)]| User::of(&server.endpoint(), variables).open("p").get("a");
    says(
        get(&[("AWS_ACCESS_KEY_ID", "AKnone"), ("AWS_SECRET_ACCESS_KEY", "geheim")]),
        Kind::Refused,
        &["doesn't know the access key of the environment"],
    );
    says(
        get(&[("AWS_ACCESS_KEY_ID", KEYS.0), ("AWS_SECRET_ACCESS_KEY", "geheim")]),
        Kind::Refused,
        &["enter both again"],
    );
    says(get(&[("AWS_ACCESS_KEY_ID", KEYS.0)]), Kind::Refused, &["AWS_SECRET_ACCESS_KEY isn't"]);
    says(get(&[]), Kind::Refused, &["there are no credentials", "~/.aws/credentials"]);
    server.habits(|habits| habits.token = Some("new".into()));
    let old = [("AWS_ACCESS_KEY_ID", KEYS.0), ("AWS_SECRET_ACCESS_KEY", KEYS.1), ("AWS_SESSION_TOKEN", "geheim")];
    says(get(&old), Kind::Refused, &["session", "has ended", "log in again"]);
    let around = User::of(&server.endpoint(), &old).around;
    assert!(!format!("{around:?}").contains("geheim"));
}

/// A session that ends in the midst of a run, and a program that gives a new one.
#[test]
fn a_session_that_is_renewed() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".aws")).unwrap();
    let token = home.path().join("token");
    let config = format!(
        "[default]\ncredential_process = echo '{{\"AccessKeyId\":\"{}\",\"SecretAccessKey\":\"{}\",\"SessionToken\":\"'$(cat {})'\"}}'\n",
        KEYS.0,
        KEYS.1,
        token.display()
    );
    std::fs::write(home.path().join(".aws/config"), config).unwrap();
    let server = S3::with(Habits { token: Some("one".into()), ..Habits::default() });
    std::fs::write(&token, "one").unwrap();
    let user = User::of(&server.endpoint(), &[]);
    let user = User { around: Surroundings { home: Some(home.path().into()), ..user.around }, told: user.told };
    let store = user.create("p");
    server.habits(|habits| habits.token = Some("two".into()));
    says(store.put("a", b"1", Put::Create), Kind::Refused, &["has ended"]);
    std::fs::write(&token, "two").unwrap();
    store.put("a", b"1", Put::Create).unwrap();
}

/// The same with the user's own file of credentials, which something else writes anew; and with keys that were
/// replaced.
#[test]
fn a_file_of_credentials_that_is_written_anew() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("credentials");
    let log_in = |key: &str, token: &str| {
        let text = format!(
            "[work]\naws_access_key_id = {key}\naws_secret_access_key = {}\naws_session_token = {token}\n",
            KEYS.1
        );
        std::fs::write(&file, text).unwrap();
    };
    log_in(KEYS.0, "one");
    let server = S3::with(Habits { token: Some("one".into()), ..Habits::default() });
    let set = [("AWS_PROFILE", "work"), ("AWS_SHARED_CREDENTIALS_FILE", file.to_str().unwrap())];
    let store = User::of(&server.endpoint(), &set).create("p");
    server.habits(|habits| habits.token = Some("two".into()));
    says(store.put("a", b"1", Put::Create), Kind::Refused, &["the profile 'work'", "has ended"]);
    log_in(KEYS.0, "two");
    store.put("a", b"1", Put::Create).unwrap();
    log_in("AKreplaced", "two");
    let store = User::of(&server.endpoint(), &set).open("p");
    says(store.get("a"), Kind::Refused, &["doesn't know the access key of the profile 'work'"]);
    log_in(KEYS.0, "two");
    assert_eq!(store.get("a").unwrap(), b"1");
}

#[test]
fn places_that_are_wrong() {
    let server = S3::start();
    let user = User::at(&server);
    let missing = user.create_in("other", "p").err().unwrap();
    assert_eq!(missing.action, Action::FindBucket);
    says(Err::<(), _>(missing), Kind::Missing, &["there is no bucket 'other' at http://127.0.0.1"]);
    server.set("p/holiday.jpg", b"not ours");
    says(user.create_in("test", "p"), Kind::Exists, &["'p/holiday.jpg'", "a prefix of its own"]);
    server.set("q/", b"");
    server.set("qq/x", b"");
    user.create("q");
    server.habits(|habits| habits.forbidden = HashSet::from(["ListBucket", "PutObject"]));
    says(user.create_in("test", "r"), Kind::Refused, &["don't allow ListBucket"]);
    says(user.open("r").put("a", b"1", Put::Replace), Kind::Refused, &["cannot write 'a'", "don't allow PutObject"]);
    // What is no S3 at all.
    for action in ["ListBucket", "GetObject"] {
        server.instead(action, 0, 1, Instead::Proxy);
    }
    server.habits(|habits| habits.forbidden.clear());
    says(user.create_in("test", "r"), Kind::Io, &["no S3 server"]);
}

#[test]
fn a_clock_that_is_wrong_is_made_up_for_and_told() {
    for ahead in [-7 * 3600, 30 * 60] {
        let server = S3::with(Habits { clock_ahead: ahead, ..Habits::default() });
        let user = User::at(&server);
        let store = user.create("p");
        store.put("a", b"1", Put::Create).unwrap();
        assert_eq!(store.get("a").unwrap(), b"1");
        let told = user.told();
        let far = if ahead < 0 { "7 hours ahead of" } else { "minutes behind" };
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains(far) && told[0].contains("set the clock"), "{told:?}");
    }
    // One that goes on refusing is believed.
    let server = S3::start();
    server.instead("ListBucket", 0, 9, Instead::Refuse(403, "RequestTimeTooSkewed"));
    says(User::at(&server).create_in("test", "p"), Kind::Refused, &["set the clock"]);
}

#[test]
fn the_bucket_tells_its_region() {
    let server = S3::with(Habits { region: Some("eu-central-9".into()), ..Habits::default() });
    let user = User::at(&server);
    let store = user.create("p");
    server.asked();
    store.put("a", b"1", Put::Create).unwrap();
    assert_eq!(server.asked().len(), 1, "it is remembered");
}

/// Four large providers take no bucket in the path. Each has a word of its own for it.
#[test]
fn a_server_that_wants_the_bucket_in_its_name() {
    let codes =
        ["SecondLevelDomainForbidden", "PathStyleDomainForbidden", "VirtualHostDomainRequired", "InvalidPathAccess"];
    for code in codes {
        let server = S3::with(Habits { in_host: Some(code), ..Habits::default() });
        let endpoint = format!("http://localhost:{}", server.port());
        let keys = [("AWS_ACCESS_KEY_ID", KEYS.0), ("AWS_SECRET_ACCESS_KEY", KEYS.1)];
        let store = User::of(&endpoint, &keys).create("p");
        server.asked();
        store.put("a/b", b"1", Put::Create).unwrap();
        assert_eq!(server.asked(), [("PutObject", "p/a/b".to_owned())], "it is remembered, {code}");
        let again = User::of(&endpoint, &keys).open("p");
        assert_eq!(again.get("a/b").unwrap(), b"1");
        let mut listed = Vec::new();
        again.list("a", &mut |of| listed.push(of.name)).unwrap();
        assert_eq!(listed, ["a/b"]);
        // An address has no names below it.
        says(User::at(&server).create_in("test", "p"), Kind::Refused, &[code, "by its name", "'test'"]);
    }
}

/// Requests that were on their way, signed for another one, when it was told.
#[test]
fn all_who_are_told_the_region_at_once_go_by_it() {
    let server = S3::with(Habits { region: Some("eu-central-9".into()), ..Habits::default() });
    server.set("p/a", b"1");
    let relay = Relay::to(server.port(), Line::long(Duration::from_millis(200)));
    let endpoint = format!("http://127.0.0.1:{}", relay.port());
    let user = User::of(&endpoint, &[("AWS_ACCESS_KEY_ID", KEYS.0), ("AWS_SECRET_ACCESS_KEY", KEYS.1)]);
    let store = user.open("p");
    std::thread::scope(|scope| {
        let gets: Vec<_> = (0..8).map(|_| scope.spawn(|| store.get("a"))).collect();
        gets.into_iter().for_each(|get| assert_eq!(get.join().unwrap().unwrap(), b"1"));
    });
}

#[test]
fn a_length_that_is_not_told_at_once() {
    for (silent_heads, ignores_ranges) in [(true, false), (false, true), (true, true)] {
        let server = S3::with(Habits { silent_heads, ignores_ranges, ..Habits::default() });
        let store = User::at(&server).create("p");
        store.put("a", &vec![1; 100_000], Put::Create).unwrap();
        assert_eq!(store.len("a").unwrap(), Some(100_000), "{silent_heads} {ignores_ranges}");
        assert_eq!(store.len("none").unwrap(), None);
    }
}

/// A proxy whose servers are away for a moment says 404 of everything. Nobody is told by it that there is no such
/// object, or that it is removed.
#[test]
fn what_a_proxy_says_is_not_taken_for_s3s_word() {
    for nameless in [false, true] {
        let server = S3::with(Habits { nameless, ..Habits::default() });
        let store = User::at(&server).create("p");
        store.put("a", b"dear", Put::Create).unwrap();
        // For a while: it is S3 that answers there. So it is tried again.
        for action in ["HeadObject", "GetObject"] {
            server.instead(action, 0, 1, Instead::Proxy);
        }
        assert_eq!(store.len("a").unwrap(), Some(4));
        server.as_usual();
        server.instead("GetObject", 0, 2, Instead::Proxy);
        assert_eq!(store.get("a").unwrap(), b"dear");
        // Who has never heard S3 there says what answers.
        server.instead("GetObject", 0, 1, Instead::Proxy);
        says(User::at(&server).open("p").get("a"), Kind::Io, &["is no S3 server"]);
        server.as_usual();
        // Nothing is removed because something on the way says that it isn't there.
        server.instead("DeleteObject", 0, 1, Instead::Proxy);
        store.delete("a").unwrap();
        assert!(server.object("p/a").is_none());
        store.put("a", b"dear", Put::Create).unwrap();
        // What S3 itself says counts.
        assert_eq!(store.len("b").unwrap(), None);
        assert_eq!(store.get("b").unwrap_err().kind, Kind::Missing);
        store.delete("b").unwrap();
        store.delete("a").unwrap();
        assert_eq!(store.len("a").unwrap(), None);
    }
}

#[test]
fn a_quota_that_is_used_up() {
    let server = S3::with(Habits { quota: Some(12 * MIB as u64), ..Habits::default() });
    let store = User::at(&server).create("p");
    store.put("kept", &vec![1; 5 * MIB], Put::Create).unwrap();
    says(store.put("more", &vec![1; 8 * MIB], Put::Create), Kind::Full, &["takes no more", "QuotaExceeded"]);
    let mut upload = store.upload("large", 0).unwrap();
    let written = (0..40).try_for_each(|_| upload.write(&vec![2; MIB]));
    let ended = match written {
        Ok(()) => upload.finish(),
        failed => {
            // Whoever goes on is told the same again.
            says(upload.write(b"1"), Kind::Full, &["QuotaExceeded"]);
            says(upload.finish(), Kind::Full, &["QuotaExceeded"]);
            failed
        }
    };
    says(ended, Kind::Full, &["cannot write 'large'", "QuotaExceeded"]);
    assert_eq!((server.unfinished(), store.len("large").unwrap()), (0, None), "nothing of it stays");
    assert_eq!(store.get("kept").unwrap().len(), 5 * MIB);
}

#[test]
fn uploads_that_nobody_finishes() {
    let server = S3::start();
    let user = User::at(&server);
    let store = user.create("p");
    let mut upload = store.upload("old", 0).unwrap();
    upload.write(&vec![1; 11 * MIB]).unwrap();
    std::mem::forget(upload);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while server.unfinished() == 0 && std::time::Instant::now() < until {
        std::thread::yield_now();
    }
    server.age(6 * 86_400);
    assert_eq!(store.clear_unfinished().unwrap().files, 0);
    server.age(2 * 86_400);
    let mut living = store.upload("new", 0).unwrap();
    living.write(&vec![2; 11 * MIB]).unwrap();
    assert_eq!(user.open("p").clear_unfinished().unwrap().files, 1);
    living.finish().unwrap();
    assert_eq!(server.unfinished(), 0);
    // Somebody's rule takes away what is being written.
    let mut upload = store.upload("slow", 0).unwrap();
    upload.write(&vec![1; 11 * MIB]).unwrap();
    while server.unfinished() == 0 && std::time::Instant::now() < until {
        std::thread::yield_now();
    }
    server.age(8 * 86_400);
    assert_eq!(user.open("p").clear_unfinished().unwrap().files, 1);
    says(upload.write(&vec![1; 22 * MIB]).and_then(|()| upload.finish()), Kind::Io, &["removed from the server"]);
    assert_eq!(store.len("slow").unwrap(), None);
}

#[test]
fn classes_and_cold_storage() {
    let server = S3::start();
    let mut user = User::at(&server);
    user.around.storage_classes = vec![("data".into(), "DEEP_ARCHIVE".into())];
    let store = user.create("p");
    for name in ["data/small", "tree/small"] {
        let mut upload = store.upload(name, 0).unwrap();
        upload.write(b"1").unwrap();
        upload.finish().unwrap();
    }
    let mut upload = store.upload("data/large", 0).unwrap();
    upload.write(&vec![1; 11 * MIB]).unwrap();
    upload.finish().unwrap();
    store.put("index/x", b"1", Put::Create).unwrap();
    let class = |name: &str| server.class(&format!("p/{name}")).unwrap();
    assert_eq!((class("data/small"), class("data/large")), ("DEEP_ARCHIVE".into(), "DEEP_ARCHIVE".into()));
    assert_eq!((class("tree/small"), class("index/x")), ("STANDARD".into(), "STANDARD".into()));
    server.habits(|habits| habits.frozen = Some("DEEP_ARCHIVE".into()));
    let mut bytes = [0; 9];
    says(store.read_at("data/large", 5, &mut bytes), Kind::Frozen, &["cold storage", "brought back"]);
    assert_eq!(store.get("tree/small").unwrap(), b"1");

    // What is asked back is there after a while; what is at hand is.
    server.habits(|habits| habits.thaws_after = 2);
    let asked: Vec<_> = (0..4).map(|_| store.thaw("data/large", Haste::Bulk).unwrap()).collect();
    assert_eq!(asked, [Thaw::Coming, Thaw::Coming, Thaw::Coming, Thaw::Ready]);
    let requests = server.asked().iter().filter(|(action, _)| *action == "RestoreObject").count();
    assert_eq!(requests, 1, "looking after it costs no request to bring it back");
    store.read_at("data/large", 5, &mut bytes).unwrap();
    says(store.read_at("data/small", 0, &mut bytes[..1]), Kind::Frozen, &["cold storage"]);
    assert_eq!(store.thaw("tree/small", Haste::Bulk).unwrap(), Thaw::Ready);
    says(store.thaw("tree/none", Haste::Bulk), Kind::Missing, &["thaw", "no such object"]);
    server.habits(|habits| habits.forbidden = HashSet::from(["RestoreObject"]));
    says(store.thaw("data/small", Haste::Bulk), Kind::Refused, &["don't allow RestoreObject"]);
}

#[test]
fn what_is_spoken_in_the_clear() {
    let mut user = User::of("http://192.0.2.1", &[("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "geheim")]);
    says(user.create_in("test", "p"), Kind::Refused, &["not be encrypted", "--allow-http"]);
    user.around.allow_http = true;
    // Now it would be tried; nobody answers at an address that is reserved for documents.
    assert!(drumlin_store::S3Store::open(&crate::place::address("test", "p"), &user.around).is_ok());
}

/// What lies in a cold class can't be read to see whether it is one's own: its length tells.
#[test]
fn an_answer_that_is_lost_in_a_cold_class() {
    let server = S3::with(Habits { frozen: Some("DEEP_ARCHIVE".into()), ..Habits::default() });
    let mut user = User::at(&server);
    user.around.storage_classes = vec![("data".into(), "DEEP_ARCHIVE".into())];
    let store = user.create("p");
    server.instead("PutObject", 0, 1, Instead::Vanish);
    store.put("data/pack", b"own", Put::Create).unwrap();
    assert_eq!(server.object("p/data/pack").unwrap(), b"own");
    server.set("p/data/other", b"somebody else's");
    says(store.put("data/other", b"own", Put::Create), Kind::Exists, &["data/other"]);
}

/// The provider has no room for haste: that is told at once, with what to do.
#[test]
fn haste_that_the_provider_has_no_room_for() {
    let server = S3::with(Habits { frozen: Some("COLD".into()), ..Habits::default() });
    let mut user = User::at(&server);
    user.around.storage_classes = vec![("data".into(), "COLD".into())];
    let store = user.create("p");
    store.put("data/pack", b"1", Put::Create).unwrap();
    server.asked();
    server.instead("RestoreObject", 0, 1, Instead::Refuse(503, "GlacierExpeditedRetrievalNotAvailable"));
    says(store.thaw("data/pack", Haste::Expedited), Kind::Refused, &["no room for expedited", "--thaw standard"]);
    assert_eq!(server.asked().iter().filter(|(action, _)| *action == "RestoreObject").count(), 1, "asked once");
    assert_eq!(store.thaw("data/pack", Haste::Standard).unwrap(), Thaw::Coming);
}
