//! One connection: a request out, its answer in.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::Endpoint;
use super::proxy::Proxy;
use super::socket::Socket;
use super::tls;
use crate::limit::Limits;

/// Longer heads are no answer of an object storage.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Header lines of an answer.
const HEADERS_MAX: usize = 100;
/// What is read at once.
const READ_BYTES: usize = 64 << 10;

/// A request. What the connection needs to say for itself, such as the body's length, is added.
pub(crate) struct Request<'a> {
    pub method: &'static str,
    /// Path and query, encoded.
    pub target: &'a str,
    /// Names in lower case; `host` is among them.
    pub headers: &'a [(&'a str, String)],
    pub body: &'a [u8],
}

/// Names in lower case, and what they say.
type Headers = Vec<(String, String)>;

/// An answer.
#[derive(Debug)]
pub(crate) struct Response {
    pub status: u16,
    headers: Headers,
    pub body: Vec<u8>,
}

impl Response {
    /// The first header of this name, which is in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str())
    }

    #[cfg(test)]
    pub(crate) fn made(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Response { status, headers: headers.iter().map(owned).collect(), body: body.to_vec() }
    }
}

/// No answer came, or half of one.
#[derive(Debug)]
pub(crate) struct Broken {
    pub error: io::Error,
    /// Not a byte of an answer came. The request may have been carried out all the same.
    pub unheard: bool,
    /// It was not closed; nothing has moved.
    pub silent: bool,
    /// There was no connection to be had in the first place.
    pub dialing: bool,
}

enum Stream {
    Plain(Socket),
    Tls(Box<StreamOwned<ClientConnection, Socket>>),
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(buf),
            Stream::Tls(tls) => tls.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.write(buf),
            Stream::Tls(tls) => tls.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.flush(),
            Stream::Tls(tls) => tls.flush(),
        }
    }
}

pub(super) struct Connection {
    stream: Stream,
    /// A proxy that gets the requests: what stands before each target, and what it is told of the user.
    by: Option<(String, Option<String>)>,
    /// What came and was not taken yet begins at `taken`.
    came: Vec<u8>,
    taken: usize,
    reusable: bool,
    heard: bool,
}

/// Have a proxy connect to a server: from then on the socket is as one to that.
fn tunnel(socket: Socket, proxy: &Proxy, endpoint: &Endpoint) -> io::Result<Socket> {
    let mut connection = Connection::over(Stream::Plain(socket), None);
    let to = endpoint.with_port();
    let user = proxy.authorization.iter().map(|user| ("proxy-authorization", user.clone()));
    let headers: Vec<_> = std::iter::once(("host", to.clone())).chain(user).collect();
    let request = Request { method: "CONNECT", target: &to, headers: &headers, body: b"" };
    let answer = connection.exchange(&request, &|_| 0)?;
    if answer.status >= 300 {
        return Err(proxy.refusal(answer.status));
    }
    match connection.stream {
        // A server that speaks TLS waits for the client to begin.
        Stream::Plain(socket) if connection.taken == connection.came.len() => Ok(socket),
        _ => Err(malformed()),
    }
}

impl Connection {
    /// By way of a proxy, if there is one. `patience` in place of the usual one, for connecting and for silence.
    pub(super) fn dial(
        endpoint: &Endpoint,
        proxy: Option<&Proxy>,
        tls: Option<Arc<ClientConfig>>,
        limits: &Limits,
        patience: Option<Duration>,
    ) -> io::Result<Self> {
        let to = proxy.map_or((endpoint.host.as_str(), endpoint.port), |proxy| (proxy.host.as_str(), proxy.port));
        let mut socket = Socket::dial(to, limits, patience)?;
        let mut by = None;
        let stream = match tls {
            None => {
                by = proxy.map(|proxy| (format!("http://{}", endpoint.authority()), proxy.authorization.clone()));
                Stream::Plain(socket)
            }
            Some(config) => {
                if let Some(proxy) = proxy {
                    socket = tunnel(socket, proxy, endpoint)?;
                }
                let name = ServerName::try_from(endpoint.host.clone()).map_err(io::Error::other)?;
                let mut session = ClientConnection::new(config, name).map_err(io::Error::other)?;
                while session.is_handshaking() {
                    session.complete_io(&mut socket).map_err(untrusted)?;
                }
                Stream::Tls(Box::new(StreamOwned::new(session, socket)))
            }
        };
        Ok(Self::over(stream, by))
    }

    fn over(stream: Stream, by: Option<(String, Option<String>)>) -> Self {
        Connection { stream, by, came: Vec::new(), taken: 0, reusable: true, heard: false }
    }

    /// Nothing is left over from the last answer, and it is not closed.
    pub(super) fn is_quiet(&self) -> bool {
        let socket = match &self.stream {
            Stream::Plain(socket) => socket,
            Stream::Tls(tls) => &tls.sock,
        };
        self.taken == self.came.len() && socket.is_quiet()
    }

    pub(super) fn is_reusable(&self) -> bool {
        self.reusable
    }

    /// Send a request and take in the answer; of its body no more than `most` says for its status.
    pub(super) fn call(&mut self, request: &Request<'_>, most: &dyn Fn(u16) -> usize) -> Result<Response, Broken> {
        self.heard = false;
        self.reusable = false;
        self.exchange(request, most).map_err(|error| {
            let silent = error.kind() == ErrorKind::TimedOut;
            Broken { error, unheard: !self.heard, silent, dialing: false }
        })
    }

    fn exchange(&mut self, request: &Request<'_>, most: &dyn Fn(u16) -> usize) -> io::Result<Response> {
        if let Err(error) = self.send(request) {
            // A server that refuses a long body answers and closes, and the answer may have come through.
            return match self.answer(request.method, most) {
                Ok(response) if response.status >= 400 => {
                    // It may still wait for the rest of that body.
                    self.reusable = false;
                    Ok(response)
                }
                _ => Err(error),
            };
        }
        let response = self.answer(request.method, most)?;
        self.reusable = self.reusable && self.taken == self.came.len();
        Ok(response)
    }

    fn send(&mut self, request: &Request<'_>) -> io::Result<()> {
        let (before, authorization) =
            self.by.as_ref().map_or(("", None), |(before, user)| (before.as_str(), user.as_ref()));
        let mut head = format!("{} {before}{} HTTP/1.1\r\n", request.method, request.target);
        if let Some(authorization) = authorization {
            head.push_str(&format!("proxy-authorization: {authorization}\r\n"));
        }
        for (name, value) in request.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !request.body.is_empty() || matches!(request.method, "PUT" | "POST") {
            head.push_str(&format!("content-length: {}\r\n", request.body.len()));
        }
        head.push_str("\r\n");
        let mut head = head.into_bytes();
        // A small body goes along in one packet.
        let (with_head, rest) =
            request.body.split_at(if request.body.len() <= READ_BYTES { request.body.len() } else { 0 });
        head.extend_from_slice(with_head);
        self.stream.write_all(&head)?;
        self.stream.write_all(rest)?;
        self.stream.flush()
    }

    fn answer(&mut self, method: &str, most: &dyn Fn(u16) -> usize) -> io::Result<Response> {
        loop {
            let (status, headers, keep) = self.head()?;
            // Interim answers.
            if (100..200).contains(&status) {
                continue;
            }
            let mut response = Response { status, headers, body: Vec::new() };
            let most = most(status);
            let is_tunnel = method == "CONNECT" && status < 300;
            let whole = if method == "HEAD" || is_tunnel || matches!(status, 204 | 304) {
                true
            } else if response.header("transfer-encoding").is_some_and(|of| of.to_ascii_lowercase().contains("chunked"))
            {
                self.chunked(&mut response.body, most)?
            } else if let Some(length) = response.header("content-length") {
                let length: u64 = length.trim().parse().map_err(|_| malformed())?;
                let wanted = usize::try_from(length).unwrap_or(usize::MAX).min(most);
                self.body(&mut response.body, wanted)?;
                wanted as u64 == length
            } else {
                self.until_closed(&mut response.body, most)?;
                false
            };
            self.reusable = keep && whole;
            return Ok(response);
        }
    }

    /// Status, headers, and whether the connection may be kept.
    fn head(&mut self) -> io::Result<(u16, Headers, bool)> {
        loop {
            let mut lines = [httparse::EMPTY_HEADER; HEADERS_MAX];
            let mut head = httparse::Response::new(&mut lines);
            match head.parse(&self.came[self.taken..]) {
                Ok(httparse::Status::Complete(len)) => {
                    let status = head.code.ok_or_else(malformed)?;
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
                    let headers: Vec<_> =
                        head.headers.iter().map(|h| (h.name.to_ascii_lowercase(), text(h.value))).collect();
                    let newer = head.version == Some(1);
                    self.taken += len;
                    let connection = headers.iter().find(|(name, _)| name == "connection").map(|(_, value)| value);
                    let keep = newer && connection.is_none_or(|of| !of.to_ascii_lowercase().contains("close"));
                    return Ok((status, headers, keep));
                }
                Ok(httparse::Status::Partial) if self.came.len() - self.taken < HEAD_BYTES_MAX => self.more()?,
                _ => return Err(malformed()),
            }
        }
    }

    /// Read more; the end is an error.
    fn more(&mut self) -> io::Result<()> {
        if self.taken > 0 {
            self.came.drain(..self.taken);
            self.taken = 0;
        }
        let len = self.came.len();
        self.came.resize(len + READ_BYTES, 0);
        let came = self.stream.read(&mut self.came[len..]);
        self.came.truncate(len + came.as_ref().map_or(0, |came| *came));
        match came? {
            0 => Err(io::Error::new(ErrorKind::UnexpectedEof, "the server closed the connection")),
            _ => {
                self.heard = true;
                Ok(())
            }
        }
    }

    /// The next `len` bytes. Room is taken as they come: a server may claim any length.
    fn body(&mut self, body: &mut Vec<u8>, len: usize) -> io::Result<()> {
        let here = len.min(self.came.len() - self.taken);
        body.extend_from_slice(&self.came[self.taken..self.taken + here]);
        self.taken += here;
        let left = len - here;
        let came = (&mut self.stream).take(left as u64).read_to_end(body)?;
        match came == left {
            true => Ok(()),
            false => Err(io::Error::new(ErrorKind::UnexpectedEof, "the connection was closed within the answer")),
        }
    }

    /// A body that is as long as the connection lasts.
    fn until_closed(&mut self, body: &mut Vec<u8>, most: usize) -> io::Result<()> {
        body.extend_from_slice(&self.came[self.taken..]);
        self.taken = self.came.len();
        while body.len() < most {
            match self.more() {
                Ok(()) => {
                    body.extend_from_slice(&self.came[self.taken..]);
                    self.taken = self.came.len();
                }
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(error),
            }
        }
        body.truncate(most);
        Ok(())
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            let rest = &self.came[self.taken..];
            if let Some(end) = rest.iter().position(|b| *b == b'\n') {
                let line = String::from_utf8_lossy(&rest[..end]).trim_end().to_owned();
                self.taken += end + 1;
                return Ok(line);
            }
            if rest.len() > HEAD_BYTES_MAX {
                return Err(malformed());
            }
            self.more()?;
        }
    }

    /// `false`: there would be more than was wanted.
    fn chunked(&mut self, body: &mut Vec<u8>, most: usize) -> io::Result<bool> {
        loop {
            let line = self.line()?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let len = usize::from_str_radix(size, 16).map_err(|_| malformed())?;
            if len == 0 {
                while !self.line()?.is_empty() {}
                return Ok(true);
            }
            let wanted = len.min(most - body.len());
            self.body(body, wanted)?;
            if wanted < len {
                return Ok(false);
            }
            if !self.line()?.is_empty() {
                return Err(malformed());
            }
        }
    }
}

/// What went wrong in agreeing on TLS, with what to do about a certificate.
fn untrusted(error: io::Error) -> io::Error {
    let words = match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(rustls::Error::InvalidCertificate(why)) => tls::refusal(why),
        // What is no TLS at all.
        Some(rustls::Error::InvalidMessage(why)) => {
            format!("it speaks no TLS ({why:?}): if it is to be spoken to without, its URL begins with http://")
        }
        Some(other) => format!("no TLS can be agreed on: {other}"),
        None => return error,
    };
    io::Error::new(ErrorKind::InvalidData, words)
}

fn malformed() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "what answers there doesn't speak HTTP as it should")
}

#[cfg(test)]
mod tests;
