//! Proxies: who connects to a server in this machine's place, as `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and
//! `NO_PROXY` say to all programs.
//!
//! A proxy is asked for a tunnel to a server that speaks TLS (CONNECT, RFC 9110 section 9.3.6), and sees no more of it
//! than its name. A server without TLS is asked by way of the proxy, which gets the whole URL (RFC 9112 section 3.2.2).

use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::Endpoint;

/// A proxy that is spoken to by HTTP.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Proxy {
    pub host: String,
    pub port: u16,
    /// What the header Proxy-Authorization says.
    pub authorization: Option<String>,
}

impl Proxy {
    /// `http://user:password@host:port`; scheme and user may be missing. What is wrong with it, in words that don't
    /// repeat it: it may have a password.
    fn parse(variable: &str, url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(format!(
                "the proxy that {variable} names is not spoken to by http://: other proxies can't be used"
            ));
        }
        let (user, authority) = match rest.rsplit_once('@') {
            Some((user, authority)) => (Some(user), authority),
            None => (None, rest),
        };
        let place = Endpoint::parse(&format!("http://{authority}"))
            .map_err(|_| format!("{variable} names no proxy: it should be http://host:port"))?;
        let authorization = user.map(|user| {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            let both = [&decoded(name)[..], b":", &decoded(password)].concat();
            format!("Basic {}", BASE64.encode(both))
        });
        Ok(Proxy { host: place.host, port: place.port, authorization })
    }

    /// What a refusal of a tunnel means.
    pub(super) fn refusal(&self, status: u16) -> io::Error {
        match status {
            407 => io::Error::other("it wants a user and a password: http://USER:PASSWORD@HOST:PORT"),
            400..500 => io::Error::other(format!("it refuses to connect to there (status {status})")),
            _ => io::Error::new(ErrorKind::ConnectionRefused, format!("it can't connect to there (status {status})")),
        }
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Bytes of a text with percent signs before hexadecimal digits, as URLs have it.
fn decoded(text: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| str::from_utf8(digits).ok());
        match digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => (out.push(byte), rest = &after[2..]),
            None => (out.push(*first), rest = after),
        };
    }
    out
}

/// Servers that are asked without a proxy.
enum Except {
    All,
    /// A host and all below it; on one port, if one is named.
    Host(String, Option<u16>),
    /// The addresses that begin with so many bits of this one.
    Net(IpAddr, u32),
}

impl Except {
    fn parse(entry: &str) -> Option<Self> {
        if entry == "*" {
            return Some(Except::All);
        }
        let (address, bits) = entry.split_once('/').unwrap_or((entry, ""));
        if let Ok(address) = address.trim_matches(['[', ']']).parse::<IpAddr>() {
            let all = if address.is_ipv4() { 32 } else { 128 };
            let bits = if bits.is_empty() { all } else { bits.parse().ok()? };
            return (bits <= all).then_some(Except::Net(address, bits));
        }
        let (host, port) = match entry.rsplit_once(':').map(|(host, port)| (host, port.parse())) {
            Some((host, Ok(port))) => (host, Some(port)),
            _ => (entry, None),
        };
        let host = host.trim_start_matches('*').trim_matches('.').to_ascii_lowercase();
        (!host.is_empty()).then_some(Except::Host(host, port))
    }

    fn has(&self, endpoint: &Endpoint) -> bool {
        let host = endpoint.host.trim_end_matches('.').to_ascii_lowercase();
        match self {
            Except::All => true,
            Except::Host(of, port) => {
                let is_below =
                    host.strip_suffix(of.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
                is_below && port.is_none_or(|port| port == endpoint.port)
            }
            Except::Net(net, bits) => match (net, host.parse()) {
                (IpAddr::V4(net), Ok(IpAddr::V4(host))) => {
                    (u32::from(*net) ^ u32::from(host)).checked_shr(32 - bits).unwrap_or(0) == 0
                }
                (IpAddr::V6(net), Ok(IpAddr::V6(host))) => {
                    (u128::from(*net) ^ u128::from(host)).checked_shr(128 - bits).unwrap_or(0) == 0
                }
                _ => false,
            },
        }
    }
}

/// A proxy, or what is wrong with it: that matters to whoever needs it alone.
type Named = Result<Proxy, String>;

/// Which proxy for which server.
#[derive(Default)]
pub(crate) struct Proxies {
    over_tls: Option<Named>,
    in_the_clear: Option<Named>,
    except: Vec<Except>,
}

impl Proxies {
    /// From variables of the environment, of which those in lower case count more.
    pub(crate) fn read(variables: &HashMap<String, String>) -> Self {
        let get = |name: &str| {
            let value = |name: &str| variables.get(name).map(|value| value.trim().to_owned()).filter(|v| !v.is_empty());
            let upper = name.to_ascii_uppercase();
            value(name).map(|value| (name.to_owned(), value)).or_else(|| Some((upper.clone(), value(&upper)?)))
        };
        let proxy = |name: &str| {
            let named = get(name).or_else(|| get("all_proxy"));
            named.map(|(variable, url)| Proxy::parse(&variable, &url))
        };
        let except = get("no_proxy").map(|(_, list)| list).unwrap_or_default();
        let except = except.split([',', ' ']).filter(|entry| !entry.is_empty()).filter_map(Except::parse).collect();
        Proxies { over_tls: proxy("https_proxy"), in_the_clear: proxy("http_proxy"), except }
    }

    /// By whom a server is asked, if not directly. What stays on this machine needs nobody.
    ///
    /// # Errors
    /// The proxy that is named for it can't be used.
    pub(super) fn to(&self, endpoint: &Endpoint) -> io::Result<Option<&Proxy>> {
        let proxy = if endpoint.tls { &self.over_tls } else { &self.in_the_clear };
        match proxy {
            Some(proxy) if !endpoint.is_loopback() && !self.except.iter().any(|except| except.has(endpoint)) => {
                proxy.as_ref().map(Some).map_err(|why| io::Error::other(why.clone()))
            }
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Proxies {
        Proxies::read(&variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    fn to(proxies: &Proxies, url: &str) -> Option<String> {
        proxies.to(&Endpoint::parse(url).unwrap()).unwrap().map(ToString::to_string)
    }

    #[test]
    fn who_is_asked_by_whom() {
        let none = proxies(&[("HTTPS_PROXY", " "), ("http_proxy", "")]);
        assert_eq!(to(&none, "https://h"), None);
        let two = proxies(&[("https_proxy", "p:3128"), ("HTTPS_PROXY", "q"), ("HTTP_PROXY", "http://r/")]);
        assert_eq!(to(&two, "https://h").as_deref(), Some("p:3128"));
        assert_eq!(to(&two, "http://h").as_deref(), Some("r:80"));
        assert_eq!(to(&two, "https://127.0.0.1:9000"), None, "on this machine");
        assert_eq!(to(&two, "http://localhost"), None);
        let one = proxies(&[("ALL_PROXY", "http://[::1]:8080"), ("HTTP_PROXY", "r")]);
        assert_eq!(to(&one, "https://h").as_deref(), Some("[::1]:8080"));
        assert_eq!(to(&one, "http://h").as_deref(), Some("r:80"));
    }

    #[test]
    fn who_is_asked_directly() {
        for (list, direct, by_proxy) in [
            ("*", &["https://h", "https://10.0.0.1"][..], &[][..]),
            ("example.com", &["https://example.com", "https://a.b.Example.com:90"], &["https://notexample.com"]),
            (".a.org, *.b.org c.org:90", &["https://x.a.org", "https://b.org", "https://c.org:90"], &["https://c.org"]),
            ("10.0.0.0/8,::/0", &["https://10.255.0.1", "https://[fe80::1]"], &["https://11.0.0.1", "https://h"]),
            ("192.0.2.7,[2001:db8::1]", &["https://192.0.2.7", "https://[2001:db8::1]"], &["https://192.0.2.8"]),
            ("0.0.0.0/0,10.0.0.1/33", &["https://1.2.3.4"], &["https://[::2]"]),
            (", ,/,.", &[], &["https://h"]),
        ] {
            let proxies = proxies(&[("https_proxy", "p"), ("no_proxy", list)]);
            for (urls, by) in [(direct, None), (by_proxy, Some("p:80"))] {
                urls.iter().for_each(|url| assert_eq!(to(&proxies, url).as_deref(), by, "{list}: {url}"));
            }
        }
    }

    #[test]
    fn users_of_proxies() {
        let proxies = proxies(&[("https_proxy", "http://me%40work:p%3a@ss@p:1")]);
        let proxy = proxies.to(&Endpoint::parse("https://h").unwrap()).unwrap().unwrap();
        let said = proxy.authorization.as_deref().and_then(|said| said.strip_prefix("Basic ")).unwrap();
        assert_eq!(BASE64.decode(said).unwrap(), b"me@work:p:@ss");
        assert_eq!(decoded("100%, %4a%4"), b"100%, J%4");
    }

    #[test]
    fn what_is_none() {
        for (url, part) in [
            ("socks5://me:geheim@p", "other proxies"),
            ("http://me:geheim@", "http://host:port"),
            ("p:x", "HTTPS_PROXY"),
        ] {
            let proxies = proxies(&[("HTTPS_PROXY", url)]);
            // Who doesn't need it hears nothing of it.
            assert!(to(&proxies, "https://localhost").is_none() && to(&proxies, "http://h").is_none());
            let why = proxies.to(&Endpoint::parse("https://h").unwrap()).err().unwrap().to_string();
            assert!(why.contains(part) && !why.contains("geheim"), "{url}: {why}");
        }
    }
}
