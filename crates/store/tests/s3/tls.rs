//! Over TLS: whom it trusts, and that connections are kept.

use drumlin_store::{Kind, Put, Store};
use drumlin_testkit::s3::{KEYS, S3};
use drumlin_testkit::{Line, Relay, Rng};

use crate::place::User;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

fn user(endpoint: &str, bundle: &str) -> User {
    User::of(endpoint, &[("AWS_ACCESS_KEY_ID", KEYS.0), ("AWS_SECRET_ACCESS_KEY", KEYS.1), ("AWS_CA_BUNDLE", bundle)])
}

#[test]
fn a_server_that_is_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let bundle = dir.path().join("ca.pem");
    std::fs::write(&bundle, S3::authority()).unwrap();
    let server = S3::over_tls();
    let relay = Relay::to(server.port(), Line::default());
    let user = user(&format!("https://localhost:{}", relay.port()), bundle.to_str().unwrap());
    let store = user.create("p");
    let content = Rng::new(1).bytes(12 << 20);
    for n in 0..20 {
        store.put(&format!("small/{n}"), b"1", Put::Create).unwrap();
    }
    assert!(relay.connections() <= 3, "{} connections for what one could do", relay.connections());
    let mut upload = store.upload("large", 0).unwrap();
    upload.write(&content).unwrap();
    upload.finish().unwrap();
    assert!(store.get("large").unwrap() == content);
    let mut range = vec![0; 1 << 20];
    store.read_at("large", 777, &mut range).unwrap();
    assert!(range == content[777..777 + (1 << 20)]);
    // What is closed while nobody uses it is made anew, and nobody notices.
    relay.cut();
    store.put("again", b"1", Put::Create).unwrap();
    relay.cut_at(vec![relay.bytes().0 + relay.bytes().1 + (6 << 20)]);
    assert!(store.get("large").unwrap() == content);
    assert!(user.told().is_empty());
}

/// A balancer that begins anew, or somebody else's network for a while: what it says then is no TLS that anybody could
/// agree on.
#[test]
fn a_handshake_that_fails_in_the_midst_of_it_passes() {
    let dir = tempfile::tempdir().unwrap();
    let bundle = dir.path().join("ca.pem");
    std::fs::write(&bundle, S3::authority()).unwrap();
    let server = S3::over_tls();
    let relay = Relay::to(server.port(), Line::default());
    let (front, refusals) = (TcpListener::bind("127.0.0.1:0").unwrap(), Arc::new(AtomicU32::new(0)));
    let (port, to, left) = (front.local_addr().unwrap().port(), relay.port(), refusals.clone());
    std::thread::spawn(move || {
        for client in front.incoming().map_while(Result::ok) {
            if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
                // A fatal alert: internal error.
                let _ = (&client).write_all(&[0x15, 3, 3, 0, 2, 2, 80]);
                continue;
            }
            let server = TcpStream::connect(("127.0.0.1", to)).unwrap();
            for (mut from, mut to) in [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)] {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    let user = user(&format!("https://localhost:{port}"), bundle.to_str().unwrap());
    let store = user.create("p");
    store.put("a", b"1", Put::Create).unwrap();
    refusals.store(2, Ordering::Relaxed);
    relay.cut();
    assert_eq!(store.get("a").unwrap(), b"1");
    assert_eq!(refusals.load(Ordering::Relaxed), 0, "it was refused, and came again");
}

#[test]
fn servers_that_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let bundle = dir.path().join("ca.pem");
    std::fs::write(&bundle, S3::authority()).unwrap();
    let server = S3::over_tls();
    let none = dir.path().join("none.pem");
    let odd = dir.path().join("odd.pem");
    std::fs::write(&odd, "nothing").unwrap();
    // A certificate that isn't the one that is shown, though it is trusted, and one for another name.
    let own = S3::over_tls_of_its_own();
    let own_by_number = format!("https://127.0.0.1:{}", own.port());
    let own_bundle = dir.path().join("own.pem");
    std::fs::write(&own_bundle, S3::own_certificate()).unwrap();
    let own_bundle = own_bundle.to_str().unwrap();
    // A server that speaks no TLS answers what it can't read as HTTP has it.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let plain = format!("https://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let _ = (&client).read(&mut [0; 4096]);
            let _ = (&client).write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n");
        }
    });
    let by_number = format!("https://127.0.0.1:{}", server.port());
    let (bundle, none, odd) = (bundle.to_str().unwrap(), none.to_str().unwrap(), odd.to_str().unwrap());
    for (endpoint, bundle, kind, part) in [
        (&server.endpoint(), "", Kind::Io, "AWS_CA_BUNDLE"),
        (&by_number, bundle, Kind::Io, "is for another server"),
        (&own.endpoint(), bundle, Kind::Io, "it has signed itself"),
        (&own.endpoint(), bundle, Kind::Io, "AWS_CA_BUNDLE"),
        (&server.endpoint(), own_bundle, Kind::Io, "nobody who is trusted here has signed it"),
        (&own_by_number, own_bundle, Kind::Io, "is for another server"),
        (&plain, bundle, Kind::Io, "http://"),
        (&server.endpoint(), none, Kind::Io, "none.pem"),
        (&server.endpoint(), odd, Kind::Io, "odd.pem"),
    ] {
        let error = user(endpoint, bundle).open("p").get("a").unwrap_err();
        assert_eq!(error.kind, kind, "{endpoint} {bundle}: {error}");
        assert!(error.to_string().contains(part), "{endpoint} {bundle}: {error}");
    }
}

/// As it is made at home: a certificate that has signed itself, and that the user names. In the environment or in
/// `~/.aws/config`.
#[test]
fn a_certificate_of_the_servers_own() {
    let home = tempfile::tempdir().unwrap();
    let bundle = home.path().join("own.pem");
    std::fs::write(&bundle, S3::own_certificate()).unwrap();
    let server = S3::over_tls_of_its_own();
    user(&server.endpoint(), bundle.to_str().unwrap()).create("p").put("a", b"1", Put::Create).unwrap();
    std::fs::create_dir(home.path().join(".aws")).unwrap();
    std::fs::write(home.path().join(".aws/config"), "[default]\nca_bundle = ~/own.pem\n").unwrap();
    let mut user = user(&server.endpoint(), "");
    user.around.home = Some(home.path().into());
    assert_eq!(user.open("p").get("a").unwrap(), b"1");
}
