//! The store over rclone, on a folder and on a WebDAV server: by `tests/remote rclone`.

use std::cell::Cell;

use drumlin_store::conformance;
use drumlin_store::{Location, SftpStore, Surroundings};
use drumlin_testkit::Rclone;

#[test]
#[ignore = "needs rclone"]
fn conforms() {
    let rclone = Rclone::start();
    for remote in rclone.remotes() {
        let count = Cell::new(0);
        conformance::check_alone(|| {
            count.set(count.get() + 1);
            let location = Location::Program(rclone.serves(remote, &format!("repo-{}", count.get())));
            Box::new(SftpStore::create(&location, &Surroundings::default()).unwrap_or_else(|e| panic!("{e}")))
        });
    }
}
