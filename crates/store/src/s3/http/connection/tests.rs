use std::net::TcpListener;
use std::sync::mpsc::channel;
use std::thread;

use super::*;

/// A server that answers each request on one connection with the next of these, whatever it is.
fn server(answers: Vec<&'static [u8]>) -> (Endpoint, std::sync::mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let (to, requests) = channel();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        for answer in answers {
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() > 0 {
                request.push(byte[0]);
            }
            let _ = to.send(request);
            // In pieces, as a line would have it.
            for piece in answer.chunks(7) {
                stream.write_all(piece).unwrap();
            }
        }
    });
    (endpoint, requests)
}

fn ask(connection: &mut Connection, method: &'static str, most: usize) -> Result<Response, Broken> {
    let headers = [("host", "h".to_owned()), ("x-a", "1".to_owned())];
    connection.call(&Request { method, target: "/x?y=1", headers: &headers, body: b"" }, &|_| most)
}

fn dial(endpoint: &Endpoint) -> Connection {
    Connection::dial(endpoint, None, None, &Limits::default(), None).unwrap()
}

#[test]
fn answers_of_every_sort_over_one_connection() {
    let (endpoint, requests) = server(vec![
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"x\"\r\n\r\nhello",
        b"HTTP/1.1 404 Not Found\r\ntransfer-encoding: chunked\r\n\r\n3;a=b\r\nabc\r\nA\r\n0123456789\r\n0\r\nx: y\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    ]);
    let mut connection = dial(&endpoint);
    let first = ask(&mut connection, "GET", 100).unwrap();
    assert_eq!((first.status, first.header("etag"), &first.body[..]), (200, Some("\"x\""), &b"hello"[..]));
    assert!(requests.recv().unwrap().starts_with(b"GET /x?y=1 HTTP/1.1\r\nhost: h\r\nx-a: 1\r\n\r\n"));
    let second = ask(&mut connection, "GET", 100).unwrap();
    assert_eq!((second.status, &second.body[..]), (404, &b"abc0123456789"[..]));
    assert_eq!(ask(&mut connection, "PUT", 100).unwrap().status, 204);
    let head = ask(&mut connection, "HEAD", 100).unwrap();
    assert_eq!((head.header("content-length"), head.body.len()), (Some("77"), 0));
    assert!(connection.is_reusable());
    ask(&mut connection, "GET", 100).unwrap();
    assert!(!connection.is_reusable());
    let put = requests.iter().nth(1).unwrap();
    assert!(put.ends_with(b"content-length: 0\r\n\r\n"), "{put:?}");
}

#[test]
fn no_more_is_taken_than_was_wanted() {
    for answer in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789"[..],
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\n0123\r\n6\r\n456789\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n0123456789",
    ] {
        let (endpoint, _requests) = server(vec![answer]);
        let mut connection = dial(&endpoint);
        assert_eq!(ask(&mut connection, "GET", 6).unwrap().body, b"012345");
        assert!(!connection.is_reusable());
    }
}

#[test]
fn half_answers_and_others_break() {
    for (answer, unheard) in [
        (&b""[..], true),
        (b"HTTP/1.1 200 OK\r\nContent-Le", false),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234", false),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\n01", false),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", false),
        (b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n", false),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", false),
    ] {
        let (endpoint, _requests) = server(vec![answer]);
        let broken = ask(&mut dial(&endpoint), "GET", 100).unwrap_err();
        assert_eq!(broken.unheard, unheard, "{:?}: {:?}", String::from_utf8_lossy(answer), broken.error);
        assert!(!broken.dialing && !broken.silent);
    }
}

#[test]
fn silence_breaks_too() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let mut connection =
        Connection::dial(&endpoint, None, None, &Limits::default(), Some(Duration::from_millis(200))).unwrap();
    let broken = ask(&mut connection, "GET", 100).unwrap_err();
    assert!(broken.unheard && broken.silent, "{:?}", broken.error);
    drop(listener);
}

/// A server that has closed its side, with or without a word, and reads no more. Seen of one that went away while a
/// line was full: what was to be sent waited for a minute.
#[test]
fn who_has_closed_it_is_sent_nothing_more() {
    for answer in [&b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n"[..], b""] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let (end, ended) = channel::<()>();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1000]).unwrap();
            stream.write_all(answer).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let _ = ended.recv();
        });
        let mut connection = dial(&endpoint);
        let (headers, body) = ([("host", "h".to_owned())], vec![0; 64 << 20]);
        let start = std::time::Instant::now();
        let called = connection.call(&Request { method: "PUT", target: "/x", headers: &headers, body: &body }, &|_| 10);
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        match (called, answer.is_empty()) {
            (Ok(response), false) => assert_eq!(response.status, 503),
            (Err(broken), true) => assert!(broken.unheard && !broken.silent, "{broken:?}"),
            (other, _) => panic!("{other:?}"),
        }
        assert!(!connection.is_reusable());
        drop(end);
        server.join().unwrap();
    }
}
