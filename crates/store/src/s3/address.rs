//! `s3://bucket/prefix`, or `s3:https://host:port/bucket/prefix` with the server in it.

use std::fmt;

use super::http::Endpoint;
use crate::name;

/// Where in an object storage a repository is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Address {
    /// The server's URL, if the address says so; else the user's surroundings do, or it is Amazon's.
    pub endpoint: Option<String>,
    /// The bucket.
    pub bucket: String,
    /// What the keys of its objects begin with, without a slash at either end; empty for the whole bucket.
    pub prefix: String,
}

/// With the longest of our names behind it a key is still one that every server takes.
const PREFIX_BYTES_MAX: usize = 1024 - 1 - name::NAME_BYTES_MAX;

impl S3Address {
    /// Read what comes behind `s3:`.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(rest: &str) -> Result<Self, &'static str> {
        let (endpoint, path) = match rest.strip_prefix("//") {
            Some(path) => (None, path),
            None => {
                let lower = rest.to_ascii_lowercase();
                let scheme = ["https://", "http://"].into_iter().find(|scheme| lower.starts_with(scheme));
                let scheme = scheme.ok_or("write s3://bucket/prefix, or s3:https://host/bucket/prefix")?.len();
                let end = rest[scheme..].find('/').ok_or("there is no bucket in it: s3:https://host/bucket/prefix")?;
                let (url, path) = rest.split_at(scheme + end);
                let endpoint = Endpoint::parse(url).map_err(|why| match why.contains("password") {
                    true => "an address ends up in logs, so no password may be in it: credentials come from the environment or from ~/.aws",
                    false => "its server is not valid: s3:https://host:port/bucket/prefix",
                })?;
                (Some(endpoint.to_string()), &path[1..])
            }
        };
        let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
        if bucket.contains('@') {
            return Err("credentials don't belong in an address: they come from the environment or from ~/.aws");
        }
        if bucket.contains(':') {
            return Err("give a server with --endpoint, or as s3:https://host:port/bucket/prefix");
        }
        let of_bucket = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
        if bucket.is_empty() {
            return Err("there is no bucket in it: s3://bucket/prefix");
        }
        if bucket.len() < 3 || bucket.len() > 255 || !bucket.bytes().all(of_bucket) || bucket.starts_with('.') {
            return Err("its bucket's name is not valid: 3 characters or more, of letters, digits, '.' and '-'");
        }
        let prefix = prefix.trim_end_matches('/');
        if prefix.len() > PREFIX_BYTES_MAX {
            return Err("its prefix is longer than 123 bytes");
        }
        let bad = |segment: &str| matches!(segment, "" | "." | "..");
        if !prefix.is_empty() && prefix.split('/').any(bad) {
            return Err("its prefix has an empty segment, '.' or '..' in it, which many programs can't name");
        }
        if prefix.contains(['?', '#', '%', '\\']) || prefix.chars().any(char::is_control) {
            return Err("'?', '#', '%', '\\' and control characters can't be in its prefix");
        }
        Ok(S3Address { endpoint, bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }
}

impl fmt::Display for S3Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.endpoint {
            Some(endpoint) => write!(f, "s3:{endpoint}/{}", self.bucket)?,
            None => write!(f, "s3://{}", self.bucket)?,
        }
        if self.prefix.is_empty() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (given, endpoint, bucket, prefix, shown) in [
            ("//bucket/a/b", None, "bucket", "a/b", "s3://bucket/a/b"),
            ("//bucket", None, "bucket", "", "s3://bucket"),
            ("//my.buc-ket/x y/", None, "my.buc-ket", "x y", "s3://my.buc-ket/x y"),
            ("https://h:9000/bucket/p", Some("https://h:9000"), "bucket", "p", "s3:https://h:9000/bucket/p"),
            ("HTTP://127.0.0.1/bucket", Some("http://127.0.0.1"), "bucket", "", "s3:http://127.0.0.1/bucket"),
        ] {
            let address = S3Address::parse(given).unwrap();
            assert_eq!(
                (address.endpoint.as_deref(), &address.bucket[..], &address.prefix[..]),
                (endpoint, bucket, prefix)
            );
            assert_eq!(address.to_string(), shown);
            assert_eq!(S3Address::parse(shown.strip_prefix("s3:").unwrap()).unwrap(), address);
        }
    }

    #[test]
    fn what_is_none() {
        for (given, part) in [
            ("bucket/x", "s3://bucket"),
            ("//", "no bucket"),
            ("///x", "no bucket"),
            ("//ab/x", "3 characters"),
            ("//b ucket/x", "3 characters"),
            ("//id:secret@bucket/x", "credentials"),
            ("//host:9000/bucket", "--endpoint"),
            ("https://u:p@h/bucket", "password"),
            ("https://h", "no bucket"),
            ("https:///bucket", "server"),
            ("//bucket/a//b", "empty segment"),
            ("//bucket/../b", "'..'"),
            ("//bucket/a%20b", "'%'"),
            (&format!("//bucket/{}", "x".repeat(124)), "longer"),
        ] {
            let why = S3Address::parse(given).unwrap_err();
            assert!(why.contains(part), "{given}: {why}");
        }
    }
}
