//! The conformance suite, over every server that can be had.

use std::cell::Cell;

use drumlin_store::conformance::{self, May};
use drumlin_store::{Put, Soon, Store};
use drumlin_testkit::Bucket;
use drumlin_testkit::s3::{Habits, S3};

use crate::place::User;

fn conforms(user: &User, bucket: &str, may: May) {
    let count = Cell::new(0);
    conformance::check_as(may, || {
        count.set(count.get() + 1);
        let prefix = format!("some folder/{}", count.get());
        Box::new(user.create_in(bucket, &prefix).unwrap_or_else(|e| panic!("{e}")))
    });
}

#[test]
fn a_server_that_behaves() {
    let server = S3::with(Habits { page: Some(700), ..Habits::default() });
    conforms(&User::at(&server), "test", May::ALL);
    assert_eq!(server.unfinished(), 0, "uploads that were given up are left over");
}

#[test]
fn servers_that_know_no_conditions() {
    for habits in [
        Habits { ignores_conditions: true, ..Habits::default() },
        Habits { refuses_conditions: true, ..Habits::default() },
    ] {
        let server = S3::with(habits);
        conforms(&User::at(&server), "test", May { create_alone: false, ..May::ALL });
    }
}

#[test]
fn real_servers() {
    for bucket in Bucket::all() {
        let variables = bucket.variables();
        let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let user = User::of(bucket.endpoint(), &variables);
        conforms(&user, bucket.bucket(), May { create_alone: bucket.creates_alone(), ..May::ALL });
        eprintln!("{} conforms", bucket.server());
    }
}

/// A whole bucket is a repository's place, too, and what isn't ours in it is not seen.
#[test]
fn the_bucket_itself_and_other_peoples_objects() {
    let server = S3::start();
    let user = User::at(&server);
    let store = user.create("");
    store.put("a/b", b"1", Put::Create).unwrap();
    for key in ["a/", "a/.hidden", "a/b c", "tmp/x", "a//x", "ü&<>\"", "a/b/"] {
        server.set(key, b"not ours");
    }
    let mut names = Vec::new();
    store.list("", &mut |listed| names.push(listed.name)).unwrap();
    assert_eq!(names, ["a/b"]);
}

/// A hint may be older than the folder that is listed before.
#[test]
fn a_listing_in_order_takes_nothing_that_was_asked_for_ahead() {
    let server = S3::start();
    let user = User::at(&server);
    let (store, other) = (user.create("repo"), user.create("repo"));
    server.asked();
    store.expect(Soon::Listing("b"));
    // It has been answered.
    while !server.asked().iter().any(|(action, _)| *action == "ListBucket") {}
    other.put("b/1", b"1", Put::Create).unwrap();
    let mut names = Vec::new();
    store.list_in_order(&["a", "b"], &mut |at, listed| names.push((at, listed.name))).unwrap();
    assert_eq!(names, [(1, "b/1".to_owned())]);
}
