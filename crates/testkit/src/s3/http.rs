//! HTTP as far as a server for tests needs it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;

use super::answer::answer;
use super::{Instead, Shared, lock};

/// A request, taken apart.
pub(super) struct Request {
    pub method: String,
    /// Still encoded.
    pub path: String,
    /// Decoded.
    pub query: BTreeMap<String, String>,
    /// As it came.
    pub raw_query: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

/// An answer.
pub(super) struct Response {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

pub(super) fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let digits = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn read(from: &mut BufReader<impl Read>) -> Option<Request> {
    let mut line = String::new();
    from.read_line(&mut line).ok().filter(|len| *len > 0)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        from.read_line(&mut line).ok().filter(|len| *len > 0)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let len = headers.get("content-length").and_then(|len| len.parse().ok()).unwrap_or(0);
    let mut body = vec![0; len];
    from.read_exact(&mut body).ok()?;
    // A whole URL, as a proxy gets it.
    let target = match target.strip_prefix("http://") {
        Some(rest) => &rest[rest.find('/').unwrap_or(rest.len())..],
        None => &target,
    };
    let (path, raw_query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = raw_query.split('&').filter(|pair| !pair.is_empty());
    let query = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let query = query.map(|(name, value)| (decode(name), decode(value))).collect();
    Some(Request { method, path: path.to_owned(), query, raw_query: raw_query.to_owned(), headers, body })
}

/// Answer what comes over a connection, until it ends.
pub(super) fn serve(shared: &Shared, client: TcpStream) {
    let _ = client.set_nodelay(true);
    let Ok(socket) = client.try_clone() else { return };
    match &shared.tls {
        None => converse(shared, &socket, client),
        Some(config) => {
            let Ok(session) = rustls::ServerConnection::new(config.clone()) else { return };
            converse(shared, &socket, rustls::StreamOwned::new(session, client));
        }
    }
}

fn converse(shared: &Shared, socket: &TcpStream, stream: impl Read + Write) {
    let mut from = BufReader::new(stream);
    while let Some(request) = read(&mut from) {
        if shared.ended.load(Ordering::Relaxed) {
            return;
        }
        let mut state = lock(&shared.state);
        if state.stop_after == Some(0) {
            if !state.stopped && state.does_last {
                answer(&mut state, &request);
            }
            state.stopped = true;
            shared.changed.notify_all();
            // Nobody is told anything before the connection is cut.
            drop(shared.changed.wait_while(state, |state| state.stopped));
            return;
        }
        state.stop_after = state.stop_after.map(|left| left - 1);
        let (response, instead) = answer(&mut state, &request);
        drop(state);
        if matches!(instead, Some(Instead::Vanish | Instead::Ignore)) {
            let _ = socket.shutdown(std::net::Shutdown::Both);
            return;
        }
        if matches!(instead, Some(Instead::Garbage)) {
            let to = from.get_mut();
            let _ = to.write_all(b"\x16\x03\x01 nothing of HTTP\r\n\r\n").and_then(|()| to.flush());
            return;
        }
        if matches!(instead, Some(Instead::Endless)) {
            return endless(from.get_mut());
        }
        let mut bytes = format!("HTTP/1.1 {} X\r\n", response.status).into_bytes();
        for (name, value) in &response.headers {
            bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        if !response.headers.iter().any(|(name, _)| matches!(*name, "content-length" | "transfer-encoding")) {
            bytes.extend_from_slice(format!("content-length: {}\r\n", response.body.len()).as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        if request.method != "HEAD" {
            bytes.extend_from_slice(&response.body);
        }
        let half = matches!(instead, Some(Instead::Half));
        let part = if half { &bytes[..bytes.len() / 2] } else { &bytes };
        let to = from.get_mut();
        if to.write_all(part).and_then(|()| to.flush()).is_err() || half {
            let _ = socket.shutdown(std::net::Shutdown::Both);
            return;
        }
    }
}

/// Until whoever listens has had enough.
fn endless(to: &mut impl Write) {
    let piece = [format!("{:x}\r\n", 1 << 20).as_bytes(), &[b'x'; 1 << 20], b"\r\n"].concat();
    let mut sent = to.write_all(b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n");
    while sent.is_ok() {
        sent = to.write_all(&piece);
    }
}
