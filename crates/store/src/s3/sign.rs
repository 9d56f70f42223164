//! Signatures of requests: AWS Signature Version 4 ("Authenticating Requests (AWS Signature Version 4)", Amazon S3 API
//! Reference).

use std::fmt;

use aws_lc_rs::{digest, hmac};
use zeroize::Zeroizing;

use super::time;

/// A secret, that no message or log shows.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(Zeroizing<String>);

impl Secret {
    pub(super) fn new(text: String) -> Self {
        Secret(Zeroizing::new(text))
    }

    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// An access key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    /// Which one it is; no secret, but nobody's business either.
    pub id: Secret,
    pub secret: Secret,
    /// Of temporary ones.
    pub token: Option<Secret>,
    /// When it ends, in seconds since 1970.
    pub expires: Option<i64>,
    /// Where it comes from, for messages.
    pub source: String,
}

/// What a request is signed for.
pub(super) struct Scope<'a> {
    pub region: &'a str,
    pub service: &'a str,
    /// In seconds since 1970.
    pub now: i64,
}

/// SHA-256, in hexadecimal digits.
pub(super) fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Percent-encoded as signatures have it: all but letters, digits and `-._~`, and slashes where they part segments.
pub(super) fn encode(text: &str, slashes: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            b'/' if slashes => out.push('/'),
            byte if byte.is_ascii_alphanumeric() => out.push(char::from(byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// The query of a request, encoded and sorted.
pub(super) fn query(pairs: &[(&str, &str)]) -> String {
    let mut encoded: Vec<_> = pairs.iter().map(|(name, value)| (encode(name, false), encode(value, false))).collect();
    encoded.sort_unstable();
    encoded.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

/// Add the time, the body's hash, the token and the signature. All headers that are there are signed, so that nobody on
/// the way can take one out.
pub(super) fn sign(
    keys: &Keys,
    scope: &Scope<'_>,
    method: &str,
    (path, query): (&str, &str),
    headers: &mut Vec<(&str, String)>,
    body_hash: &str,
) {
    let stamp = time::stamp(scope.now);
    let date = &stamp[..8];
    headers.push(("x-amz-content-sha256", body_hash.to_owned()));
    headers.push(("x-amz-date", stamp.clone()));
    if let Some(token) = &keys.token {
        headers.push(("x-amz-security-token", token.expose().to_owned()));
    }
    headers.sort_unstable();
    let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
    let canonical = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{body_hash}");
    let of = format!("{date}/{}/{}/aws4_request", scope.region, scope.service);
    let text = format!("AWS4-HMAC-SHA256\n{stamp}\n{of}\n{}", sha256(canonical.as_bytes()));
    let mac = |key: &[u8], text: &str| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes());
    let first = Zeroizing::new(format!("AWS4{}", keys.secret.expose()));
    let mut key = mac(first.as_bytes(), date);
    for part in [scope.region, scope.service, "aws4_request"] {
        key = mac(key.as_ref(), part);
    }
    let signature = hex(mac(key.as_ref(), &text).as_ref());
    headers.push((
        "authorization",
        format!("AWS4-HMAC-SHA256 Credential={}/{of}, SignedHeaders={names}, Signature={signature}", keys.id.expose()),
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of "Signature Calculations for the Authorization Header", Amazon S3 API Reference.
    #[test]
    fn the_examples_of_the_reference() {
        let keys = Keys {
            id: Secret::new("AKIAIOSFODNN7EXAMPLE".into()),
            secret: Secret::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into()),
            token: None,
            expires: None,
            source: String::new(),
        };
        let scope = Scope { region: "us-east-1", service: "s3", now: time::iso("2013-05-24T00:00:00Z").unwrap() };
        let signature = |method, path, pairs: &[(&str, &str)], more: &[(&'static str, &str)], body: &[u8]| {
            let mut headers = vec![("host", "examplebucket.s3.amazonaws.com".to_owned())];
            headers.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
            sign(&keys, &scope, method, (path, &query(pairs)), &mut headers, &sha256(body));
            headers.last().unwrap().1.rsplit_once('=').unwrap().1.to_owned()
        };
        assert_eq!(
            signature("GET", "/test.txt", &[], &[("range", "bytes=0-9")], b""),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        let put = [("date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")];
        let path = encode("/test$file.text", true);
        assert_eq!(
            signature("PUT", &path, &[], &put, b"Welcome to Amazon S3."),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
        );
        assert_eq!(
            signature("GET", "/", &[("lifecycle", "")], &[], b""),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
        );
        assert_eq!(
            signature("GET", "/", &[("prefix", "J"), ("max-keys", "2")], &[], b""),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
    }

    #[test]
    fn secrets_are_not_shown() {
        let secret = Secret::new("geheim".into());
        assert_eq!(format!("{secret:?}"), "***");
        let keys =
            Keys { id: secret.clone(), secret: secret.clone(), token: Some(secret), expires: None, source: "x".into() };
        assert!(!format!("{keys:?}").contains("geheim"));
    }
}
