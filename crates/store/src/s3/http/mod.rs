//! HTTP/1.1 as a client of object storage needs it: one request after the other over a connection that is kept, bodies
//! of known length out, any sort of body in (RFC 9112). Not here: redirects, cookies, compression.

mod connection;
mod pool;
mod proxy;
mod socket;
mod tls;

pub(crate) use connection::{Request, Response};
pub(crate) use pool::Pool;
pub(crate) use proxy::Proxies;

/// `http://host:port/path` or `https://…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// Over TLS.
    pub tls: bool,
    /// A name or an address, without the brackets of IPv6.
    pub host: String,
    pub port: u16,
    /// Before everything that is asked for: empty, or begins with a slash and doesn't end with one.
    pub path: String,
}

impl Endpoint {
    /// Read a URL. What is wrong with it, in words.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let bad = |why: &str| format!("the endpoint '{}' {why}", shown(url));
        let (tls, rest) = match url.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            Some(_) => return Err(bad("is neither https:// nor http://")),
            None => (true, url),
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(bad("has a user or password in it: credentials come from the environment or from ~/.aws"));
        }
        if path.contains(['?', '#', '%']) || path.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(bad("has a path that can't be used"));
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or_else(|| bad("has a '[' without its ']'"))?,
            None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
        };
        if host.is_empty() || !host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:".contains(&b)) {
            return Err(bad("names no host"));
        }
        let port = match port.strip_prefix(':') {
            None | Some("") => {
                if tls {
                    443
                } else {
                    80
                }
            }
            Some(port) => {
                let number = port.parse().ok().filter(|port| *port > 0);
                number.ok_or_else(|| bad("has a port that is no number from 1 to 65535"))?
            }
        };
        Ok(Endpoint { tls, host: host.to_owned(), port, path: path.trim_end_matches('/').to_owned() })
    }

    /// What the Host header says.
    pub(crate) fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let usual = if self.tls { 443 } else { 80 };
        if self.port == usual { host } else { format!("{host}:{}", self.port) }
    }

    /// Host and port, as a tunnel is asked for.
    fn with_port(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{host}:{}", self.port)
    }

    /// What is sent there stays on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        match self.host.parse::<std::net::IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => {
                let host = self.host.to_ascii_lowercase();
                host == "localhost" || host.ends_with(".localhost")
            }
        }
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}{}", if self.tls { "https" } else { "http" }, self.authority(), self.path)
    }
}

/// A URL for a message: without what stands before an '@'.
fn shown(url: &str) -> String {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find('/').map_or(url.len(), |at| start + at);
    match url[start..end].rfind('@') {
        Some(at) => format!("{}***{}", &url[..start], &url[start + at..]),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        for (given, shown, loopback) in [
            ("https://s3.example.com", "https://s3.example.com", false),
            ("s3.example.com", "https://s3.example.com", false),
            ("HTTP://localhost:9000/", "http://localhost:9000", true),
            ("http://127.0.0.1:80", "http://127.0.0.1", true),
            ("https://h:443/a/b/", "https://h/a/b", false),
            ("http://[::1]:7070", "http://[::1]:7070", true),
            ("http://b.Localhost:90", "http://b.Localhost:90", true),
            ("http://notlocalhost", "http://notlocalhost", false),
            ("http://10.0.0.1", "http://10.0.0.1", false),
        ] {
            let endpoint = Endpoint::parse(given).unwrap();
            assert_eq!((endpoint.to_string().as_str(), endpoint.is_loopback()), (shown, loopback), "{given}");
        }
        for (given, part) in [
            ("ftp://h", "neither"),
            ("https://", "no host"),
            ("http://h:x", "port"),
            ("http://h:0", "port"),
            ("http://[::1", "']'"),
            ("http://h/a?b", "path"),
            ("http://me:geheim@h/", "credentials"),
            ("http://h\r\nx", "no host"),
        ] {
            let why = Endpoint::parse(given).unwrap_err();
            assert!(why.contains(part) && !why.contains("geheim"), "{given}: {why}");
        }
    }
}
