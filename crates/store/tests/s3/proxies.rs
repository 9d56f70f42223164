//! Servers that are reached by way of a proxy.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use drumlin_store::{Kind, Put, Store};
use drumlin_testkit::Rng;
use drumlin_testkit::s3::{KEYS, S3};

use crate::place::User;

/// `me:geheim`.
const USER: &str = "proxy-authorization: Basic bWU6Z2VoZWlt";

/// A proxy that makes tunnels for one user, all to one server, whatever they are asked to lead to. Which those were is
/// noted.
fn proxy(server: u16) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, asked) = (listener.local_addr().unwrap().port(), Arc::new(Mutex::new(Vec::new())));
    let notes = asked.clone();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let notes = notes.clone();
            thread::spawn(move || tunnel(client, server, &notes));
        }
    });
    (port, asked)
}

fn tunnel(mut client: TcpStream, server: u16, notes: &Mutex<Vec<String>>) -> Option<()> {
    // The client is silent from the end of its head until it is answered, so that nothing else lies in this buffer.
    let mut lines = BufReader::new(client.try_clone().ok()?).lines();
    let head: Vec<String> = lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    notes.lock().unwrap().push(head.first()?.clone());
    if !head.iter().any(|line| line == USER) {
        return client.write_all(b"HTTP/1.1 407 No\r\ncontent-length: 2\r\n\r\nno").ok();
    }
    if head[0].contains("closed.test") {
        return client.write_all(b"HTTP/1.1 403 No\r\ntransfer-encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n").ok();
    }
    client.write_all(b"HTTP/1.1 200 Connection established\r\nvia: 1.1 p\r\n\r\n").ok()?;
    let server = TcpStream::connect(("127.0.0.1", server)).ok()?;
    for (mut from, mut to) in [(client.try_clone().ok()?, server.try_clone().ok()?), (server, client)] {
        thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
    Some(())
}

fn user(endpoint: &str, bundle: &str, proxies: &[(&str, String)]) -> User {
    let keys = [("AWS_ACCESS_KEY_ID", KEYS.0), ("AWS_SECRET_ACCESS_KEY", KEYS.1), ("AWS_CA_BUNDLE", bundle)];
    let mut user = User::of(endpoint, &keys);
    user.around.allow_http = true;
    user.around.proxies = proxies.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    user
}

#[test]
fn a_tunnel_to_a_server_that_speaks_tls() {
    let dir = tempfile::tempdir().unwrap();
    let bundle = dir.path().join("ca.pem");
    std::fs::write(&bundle, S3::authority()).unwrap();
    let bundle = bundle.to_str().unwrap();
    let server = S3::over_tls();
    let (port, asked) = proxy(server.port());
    let by = |who: &str| [("HTTPS_PROXY", format!("http://{who}127.0.0.1:{port}"))];
    let store = user("https://far.test", bundle, &by("me:geheim@")).create("p");
    let content = Rng::new(1).bytes(1 << 20);
    store.put("a", &content, Put::Create).unwrap();
    assert!(store.get("a").unwrap() == content);
    let notes = std::mem::take(&mut *asked.lock().unwrap());
    assert!(!notes.is_empty() && notes.len() < 4, "tunnels are kept: {notes:?}");
    assert!(notes.iter().all(|line| line == "CONNECT far.test:443 HTTP/1.1"), "{notes:?}");

    for (endpoint, who, part) in [
        ("https://far.test", "", "wants a user and a password"),
        ("https://closed.test:90", "me:geheim@", "refuses to connect to there (status 403)"),
        // Whoever stands in the way is not believed to be the server.
        ("https://other.test", "me:geheim@", "certificate"),
    ] {
        let error = user(endpoint, bundle, &by(who)).open("p").get("a").unwrap_err();
        let words = error.to_string();
        assert_eq!(error.kind, Kind::Io, "{words}");
        assert!(words.contains(part) && words.contains(&format!("by the proxy 127.0.0.1:{port}")), "{words}");
        assert!(!words.contains("geheim"), "{words}");
    }
    asked.lock().unwrap().clear();
    // On this machine, no proxy is asked.
    let near = format!("https://localhost:{}", server.port());
    assert!(user(&near, bundle, &by("me:geheim@")).open("p").get("a").unwrap() == content);
    assert!(asked.lock().unwrap().is_empty());
}

/// The server in this test takes whole URLs, and so does for a proxy.
#[test]
fn a_server_without_tls() {
    let server = S3::start();
    let by = [("http_proxy", format!("me:geheim@127.0.0.1:{}", server.port()))];
    let store = user("http://far.test:8080", "", &by).create("p");
    store.put("a/b", b"1", Put::Create).unwrap();
    assert_eq!(store.get("a/b").unwrap(), b"1");
    server.instead("GetObject", 0, 1, drumlin_testkit::s3::Instead::Refuse(407, ""));
    let error = store.get("a/b").unwrap_err();
    assert!(error.kind == Kind::Refused && error.to_string().contains("HTTP_PROXY"), "{error}");
}
