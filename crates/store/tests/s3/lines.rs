//! Lines that break, answers that get lost, servers that have enough.

use std::time::{Duration, Instant};

use drumlin_store::{Action, Kind, Put, Retries, Soon, Store, Surroundings};
use drumlin_testkit::s3::{Instead, KEYS, S3};
use drumlin_testkit::{Line, Relay, Rng};

use crate::place::User;

const MIB: usize = 1 << 20;

/// Each request, with each way in which its answer may fail to come, tried again without harm.
#[test]
fn whatever_fails_in_passing_is_done_all_the_same() {
    let server = S3::start();
    let store = User::at(&server).create("p");
    let large = Rng::new(1).bytes(17 * MIB);
    let failures = [
        Instead::Vanish,
        Instead::Ignore,
        Instead::Half,
        Instead::Garbage,
        Instead::Refuse(503, "SlowDown"),
        Instead::Refuse(500, "InternalError"),
        Instead::Refuse(400, "RequestTimeout"),
        Instead::Refuse(409, "ConditionalRequestConflict"),
    ];
    let actions = [
        "PutObject",
        "GetObject",
        "HeadObject",
        "DeleteObject",
        "ListBucket",
        "CreateMultipartUpload",
        "UploadPart",
        "CompleteMultipartUpload",
    ];
    for (round, failure) in failures.into_iter().enumerate() {
        for action in actions {
            server.instead(action, 0, 2, failure);
        }
        let name = |of: &str| format!("{of}/{round}");
        store.put(&name("small"), b"small", Put::Create).unwrap_or_else(|e| panic!("{failure:?}: {e}"));
        let mut upload = store.upload(&name("large"), 0).unwrap();
        upload.write(&large).unwrap();
        upload.finish().unwrap_or_else(|e| panic!("{failure:?}: {e}"));
        assert_eq!(store.get(&name("small")).unwrap(), b"small");
        assert!(store.get(&name("large")).unwrap() == large);
        assert_eq!(store.len(&name("large")).unwrap(), Some(large.len() as u64));
        let mut found = Vec::new();
        store.list("large", &mut |listed| found.push(listed)).unwrap();
        assert_eq!(found.len(), round + 1);
        store.delete(&name("small")).unwrap();
        assert_eq!(store.len(&name("small")).unwrap(), None);
    }
    assert!(server.keys().iter().all(|key| !key.contains("small")));
}

/// An answer that got lost is no reason to take one's own object for somebody else's; somebody else's is one still.
#[test]
fn who_was_first_is_told_rightly_when_answers_get_lost() {
    let server = S3::start();
    let store = User::at(&server).create("p");
    server.instead("PutObject", 0, 1, Instead::Vanish);
    store.put("mine", b"mine", Put::Create).unwrap();
    // The server, or whoever stands before it, may carry out the first attempt when all is over.
    assert!(store.may_come_late("mine"));
    store.put("once", b"once", Put::Create).unwrap();
    assert!(!store.may_come_late("once"));
    // As if a balancer had sent it to one server, had no answer, and sent it to another.
    server.set("p/balanced", b"balanced");
    store.put("balanced", b"balanced", Put::Create).unwrap();
    assert!(store.may_come_late("balanced"));
    server.set("p/theirs", b"theirs");
    assert_eq!(store.put("theirs", b"mine", Put::Create).unwrap_err().kind, Kind::Exists);
    server.instead("PutObject", 0, 1, Instead::Vanish);
    assert_eq!(store.put("theirs", b"mine", Put::Create).unwrap_err().kind, Kind::Exists);
    assert_eq!(server.object("p/theirs").unwrap(), b"theirs");
    for _ in 0..2 {
        // The second one is somebody else's by then: it has another random name in truth.
        let mut upload = store.upload("pack", 0).unwrap();
        upload.write(&vec![7; 11 * MIB]).unwrap();
        server.instead("CompleteMultipartUpload", 0, 1, Instead::Vanish);
        match server.object("p/pack") {
            None => upload.finish().unwrap(),
            Some(_) => assert_eq!(upload.finish().unwrap_err().kind, Kind::Exists),
        }
    }
    assert_eq!(server.unfinished(), 0);
}

#[test]
fn patience_has_an_end_and_says_so() {
    let server = S3::start();
    let mut user = User::at(&server);
    user.around.retries.give_up = Duration::from_millis(200);
    let store = user.create("p");
    server.instead("GetObject", 0, u32::MAX, Instead::Refuse(503, "SlowDown"));
    let error = store.get("a").unwrap_err();
    assert_eq!(error.kind, Kind::Transient);
    for part in ["cannot read 'a' in s3://test/p", "SlowDown", "tried again for"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    let told = user.told();
    assert!(told.iter().any(|words| words.contains("SlowDown") && words.contains("trying again")), "{told:?}");
    // An address where nobody is, is told at once.
    drop(store);
    let patient = Surroundings { retries: Retries::default(), ..User::of("http://127.0.0.1:1", &[]).around };
    let nobody = User { around: Surroundings { aws: user.around.aws.clone(), ..patient }, told: user.told.clone() };
    let start = Instant::now();
    let error = nobody.open("p").get("config").unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(10));
    assert_eq!((error.kind, error.action), (Kind::Transient, Action::Connect), "{error}");
    assert!(error.to_string().contains("http://127.0.0.1:1 can't be reached"), "{error}");
}

/// The very first answer may be the one that gets lost.
#[test]
fn a_line_that_breaks_at_the_first_word() {
    for failure in [Instead::Ignore, Instead::Half, Instead::Refuse(503, "SlowDown")] {
        let server = S3::start();
        server.set("p/a", b"1");
        server.instead("GetObject", 0, 3, failure);
        assert_eq!(User::at(&server).open("p").get("a").unwrap_or_else(|e| panic!("{failure:?}: {e}")), b"1");
    }
}

fn far(server: &S3, line: Line) -> (Relay, User) {
    let relay = Relay::to(server.port(), line);
    let endpoint = format!("http://127.0.0.1:{}", relay.port());
    let user = User::of(&endpoint, &[("AWS_ACCESS_KEY_ID", KEYS.0), ("AWS_SECRET_ACCESS_KEY", KEYS.1)]);
    (relay, user)
}

#[test]
fn a_pack_survives_a_line_that_breaks() {
    let server = S3::start();
    let (relay, user) = far(&server, Line::default());
    let store = user.create("p");
    let content = Rng::new(2).bytes(64 * MIB);
    let passed = relay.bytes().0 + relay.bytes().1;
    let cuts: Vec<u64> = (1..8).map(|n| passed + n * 9_500_000 + 12_345).collect();
    relay.cut_at(cuts);
    let before = relay.connections();
    let mut upload = store.upload("pack", content.len() as u64).unwrap();
    for piece in content.chunks(300_000) {
        upload.write(piece).unwrap();
    }
    upload.finish().unwrap();
    assert!(relay.connections() > before + 5, "nothing was cut");
    assert!(server.object("p/pack").unwrap() == content);
    // Parts that had arrived were not sent again.
    let sent = relay.bytes().0;
    assert!(sent < (64 + 7 * 10 + 10) * MIB as u64, "{sent}");
    assert!(store.get("pack").unwrap() == content);
}

#[test]
fn limits_of_speed_are_kept() {
    let server = S3::start();
    let mut user = User::at(&server);
    (user.around.upload_limit, user.around.download_limit) = (Some(MIB as u64), Some(2 * MIB as u64));
    let store = user.create("p");
    let content = Rng::new(3).bytes(2 * MIB);
    let start = Instant::now();
    store.put("a", &content, Put::Create).unwrap();
    let up = start.elapsed();
    let start = Instant::now();
    assert!(store.get("a").unwrap() == content);
    let down = start.elapsed();
    assert!(up > Duration::from_millis(1800), "{up:?}");
    assert!(down > Duration::from_millis(800), "{down:?}");
}

/// Parts go side by side, and what is asked for soon is asked for at once: a long line costs few of its round trips.
#[test]
fn a_long_line_is_filled() {
    let server = S3::start();
    let round_trip = Duration::from_millis(300);
    let (relay, user) = far(&server, Line::default());
    let store = user.create("p");
    for n in 0..8 {
        store.put(&format!("n/{n}"), &vec![n; 100_000], Put::Create).unwrap();
    }
    relay.set(Line::long(round_trip));
    // One round trip for a connection, one for the range; eight of each, one after the other, would be sixteen. On a
    // busy machine the quickest of some.
    let mut took = (0..5).map(|try_| {
        let start = Instant::now();
        let offset = 5 + try_ * 100;
        for n in 0..8 {
            store.expect(Soon::Range { name: &format!("n/{n}"), offset, len: 50_000 });
        }
        for n in 0..8 {
            let mut bytes = vec![0; 50_000];
            store.read_at(&format!("n/{n}"), offset, &mut bytes).unwrap();
            assert_eq!(bytes, vec![n; 50_000]);
        }
        start.elapsed()
    });
    assert!(took.any(|took| took < round_trip * 8));
    // Twelve parts, two at a time, what begins and what ends them: beside one part alone, which takes what this machine
    // takes for its bytes.
    let time = |call: &dyn Fn()| {
        let start = Instant::now();
        call();
        start.elapsed()
    };
    let mut took = (0..5).map(|n| {
        let part = time(&|| store.put(&format!("part{n}"), &vec![1; 5 * MIB], Put::Create).unwrap());
        let whole = time(&|| {
            let mut upload = store.upload(&format!("pack{n}"), 0).unwrap();
            upload.write(&vec![1; 60 * MIB]).unwrap();
            upload.finish().unwrap();
        });
        (part, whole)
    });
    assert!(took.any(|(part, whole)| whole < part * 11));
}

/// What a proxy on the way answers to the end of an upload counts for nothing: what is there does.
#[test]
fn the_end_of_an_upload_that_is_answered_with_nonsense() {
    let server = S3::start();
    let store = User::at(&server).create("p");
    let upload = |name: &str| {
        let mut upload = store.upload(name, 0).unwrap();
        upload.write(&vec![7; 11 * MIB]).unwrap();
        upload.finish()
    };
    server.instead("CompleteMultipartUpload", 0, 1, Instead::Nonsense { done: true });
    upload("data/there").unwrap();
    assert_eq!(store.len("data/there").unwrap(), Some(11 << 20));
    server.instead("CompleteMultipartUpload", 0, 1, Instead::Nonsense { done: false });
    let error = upload("data/none").unwrap_err();
    assert!(error.kind == Kind::Io && error.to_string().contains("hasn't put its parts together"), "{error}");
    assert_eq!((store.len("data/none").unwrap(), server.unfinished()), (None, 0));
}

/// It takes long, so a server may find out that it can't be done when it has begun to say that it can.
#[test]
fn the_end_of_an_upload_that_fails_within_a_success() {
    let server = S3::start();
    let store = User::at(&server).create("p");
    for (times, code, kind) in [
        (2, "InternalError", None),
        (2, "SlowDown", None),
        (1, "AccessDenied", Some(Kind::Refused)),
        (1, "PreconditionFailed", Some(Kind::Exists)),
        (1, "InvalidPart", Some(Kind::Io)),
    ] {
        server.instead("CompleteMultipartUpload", 0, times, Instead::Refuse(200, code));
        let name = format!("data/{code}");
        let mut upload = store.upload(&name, 0).unwrap();
        upload.write(&vec![7; 11 * MIB]).unwrap();
        assert_eq!(upload.finish().err().map(|error| error.kind), kind, "{code}");
        assert_eq!((store.len(&name).unwrap().is_some(), server.unfinished()), (kind.is_none(), 0), "{code}");
    }
}

/// What answers there is something else: no patience helps. Where a server has answered before, it is the line.
#[test]
fn what_was_never_a_server_is_told_at_once() {
    let server = S3::start();
    server.set("p/a", b"1");
    let store = User::at(&server).open("p");
    for _ in 0..2 {
        server.instead("GetObject", 0, 1, Instead::Garbage);
        let error = store.get("a").unwrap_err();
        assert!(error.kind == Kind::Io && error.to_string().contains("doesn't speak HTTP"), "{error}");
    }
    assert_eq!(store.get("a").unwrap(), b"1");
    server.instead("GetObject", 0, 2, Instead::Garbage);
    assert_eq!(store.get("a").unwrap(), b"1");
}

/// Whoever gives an upload up isn't held by what is on its way, and nothing of it stays.
#[test]
fn an_upload_that_is_given_up_while_nothing_comes_through() {
    for dead in [false, true] {
        let server = S3::start();
        let (relay, mut user) = far(&server, Line::default());
        user.around.retries = Retries::default();
        let store = user.create("p");
        if !dead {
            server.instead("UploadPart", 0, u32::MAX, Instead::Refuse(503, "SlowDown"));
        }
        let mut upload = store.upload("pack", 0).unwrap();
        upload.write(&vec![7; 4 * MIB]).unwrap();
        relay.stall(dead);
        upload.write(&vec![7; 7 * MIB]).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let start = Instant::now();
        drop(upload);
        assert!(start.elapsed() < Duration::from_secs(15), "{dead}: {:?}", start.elapsed());
        relay.stall(false);
        while !server.asked().iter().any(|(action, _)| *action == "AbortMultipartUpload") {
            assert!(start.elapsed() < Duration::from_secs(60), "{dead}");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(server.unfinished(), 0);
    }
}

#[test]
fn an_answer_without_end() {
    let server = S3::start();
    let store = User::at(&server).create("p");
    store.put("config", b"1", Put::Create).unwrap();
    server.instead("GetObject", 0, 1, Instead::Endless);
    let error = store.get("config").unwrap_err();
    assert!(error.kind == Kind::Io && error.to_string().contains("longer than any object"), "{error}");
    server.instead("ListBucket", 0, 1, Instead::Endless);
    assert!(store.list("", &mut |_| ()).is_err());
    assert_eq!(store.get("config").unwrap(), b"1", "and the next one is heard");
}
