//! What is found out about creating alone, and what everybody goes by.

use drumlin_store::{Kind, Put, Soon, Store};
use drumlin_testkit::s3::{Habits, S3};

use crate::place::User;

#[test]
fn one_that_honours_is_believed_and_tested_again_by_every_writer() {
    let server = S3::start();
    let user = User::at(&server);
    user.create("p");
    assert_eq!(server.object("p/tmp/once").unwrap(), b"honoured\n");
    assert!(user.told().is_empty());
    server.asked();
    let store = user.open("p");
    store.put("a", b"1", Put::Create).unwrap();
    store.put("b", b"1", Put::Create).unwrap();
    let asked: Vec<_> = server.asked();
    let about: Vec<_> = asked.iter().filter(|(_, key)| key == "p/tmp/once").map(|(action, _)| *action).collect();
    assert_eq!(about, ["GetObject", "PutObject"], "{asked:?}");
    assert_eq!(server.object("p/tmp/once").unwrap(), b"honoured\n");
    assert!(store.creates_atomically().unwrap());
    // Who reads doesn't write.
    server.asked();
    let reader = user.open("p");
    assert!(reader.creates_atomically().unwrap() && reader.creates_atomically().unwrap());
    assert_eq!(server.asked(), [("GetObject", "p/tmp/once".to_owned())]);
}

#[test]
fn one_that_ignores_is_found_out_and_stays_so() {
    let server = S3::with(Habits { ignores_conditions: true, ..Habits::default() });
    let user = User::at(&server);
    let store = user.create("p");
    assert!(user.told().iter().any(|words| words.contains("If-None-Match")));
    assert!(!store.creates_atomically().unwrap());
    store.put("a", b"first", Put::Create).unwrap();
    assert_eq!(store.put("a", b"second", Put::Create).unwrap_err().kind, Kind::Exists);
    assert_eq!(server.object("p/a").unwrap(), b"first");
    assert_eq!(server.object("p/tmp/once").unwrap(), b"ignored\n");
    // The server has learned it: whoever knows the repository goes by what was, so that all go by the same.
    server.habits(|habits| habits.ignores_conditions = false);
    let store = user.open("p");
    store.put("b", b"1", Put::Create).unwrap();
    assert!(!store.creates_atomically().unwrap() && !user.open("p").creates_atomically().unwrap());
}

#[test]
fn a_repository_that_was_moved_to_a_worse_server_is_noticed() {
    let server = S3::start();
    let user = User::at(&server);
    user.create("p").put("a", b"1", Put::Create).unwrap();
    server.habits(|habits| habits.ignores_conditions = true);
    let store = user.open("p");
    store.expect(Soon::Put);
    store.put("b", b"1", Put::Create).unwrap();
    assert!(!store.creates_atomically().unwrap() && !user.open("p").creates_atomically().unwrap());
}

#[test]
fn one_that_says_that_it_cannot_is_taken_at_its_word() {
    let server = S3::with(Habits { refuses_conditions: true, ..Habits::default() });
    let store = User::at(&server).create("p");
    assert!(!store.creates_atomically().unwrap());
    assert_eq!(server.object("p/tmp/once").unwrap(), b"ignored\n");
    store.put("a", b"1", Put::Create).unwrap();
}
