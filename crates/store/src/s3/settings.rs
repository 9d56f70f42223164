//! Which server, which bucket, which region: what the address, the command line, the environment and the profile say,
//! in this order.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use super::address::S3Address;
use super::credentials::{Profile, User};
use super::http::{Endpoint, Proxies};
use super::retention::ObjectLock;
use super::sign::encode;
use crate::around::Surroundings;

/// The longest part of a host's name, in bytes (RFC 1035).
const HOST_LABEL_MAX: usize = 63;

/// Whether this can be the name of a region, of which a host's name and what is signed are made.
pub(super) fn is_region(name: &str) -> bool {
    let of_region = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    (1..=HOST_LABEL_MAX).contains(&name.len()) && name.bytes().all(of_region)
}

/// How the bucket is asked: as it was set up, until its answers say otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    /// What requests are signed for.
    pub region: String,
    /// The bucket is a part of the host's name, as Amazon wants it and several others insist on, and not of the path,
    /// as most servers of one's own expect it.
    pub in_host: bool,
}

/// Where the bucket is, and under which names its objects are asked for.
pub(super) struct Settings {
    /// The server that was named; Amazon's if none was.
    server: Option<Endpoint>,
    /// What is tried first.
    region: String,
    pub bucket: String,
    /// What each key begins with: empty, or ends with a slash.
    pub base: String,
    /// Certificates to trust in, in place of the system's.
    pub bundle: Option<PathBuf>,
    /// By whom servers are asked.
    pub proxies: Arc<Proxies>,
    /// Folders whose objects are put into a storage class.
    pub classes: Vec<(String, String)>,
    /// Objects and folders that are kept from being removed, and for how long.
    lock: Option<(ObjectLock, Vec<String>)>,
}

impl Settings {
    /// What is wrong, in words.
    pub(super) fn new(
        address: &S3Address,
        around: &Surroundings,
        user: &User,
        profile: &Profile,
    ) -> Result<Self, String> {
        let named = address
            .endpoint
            .as_deref()
            .or(around.endpoint.as_deref())
            .or_else(|| user.get("AWS_ENDPOINT_URL_S3"))
            .or_else(|| user.get("AWS_ENDPOINT_URL"))
            .or_else(|| profile.get("endpoint_url"));
        let server = named.map(Endpoint::parse).transpose()?;
        if let Some(server) = &server
            && !server.tls
            && !server.is_loopback()
            && !around.allow_http
        {
            return Err(format!(
                "the connection to {server} would not be encrypted, and an eavesdropper would see names, lengths and the \
                 session's token: use https://, or add --allow-http"
            ));
        }
        let region = user
            .get("AWS_REGION")
            .or_else(|| user.get("AWS_DEFAULT_REGION"))
            .or_else(|| profile.get("region"))
            .unwrap_or("us-east-1")
            .to_owned();
        if !is_region(&region) {
            return Err("the region that AWS_REGION or the profile names is not valid".to_owned());
        }
        Ok(Settings {
            server,
            region,
            bucket: address.bucket.clone(),
            base: if address.prefix.is_empty() { String::new() } else { format!("{}/", address.prefix) },
            bundle: user.bundle(profile),
            proxies: Arc::new(Proxies::read(&around.proxies)),
            classes: around.storage_classes.clone(),
            lock: around.object_lock.clone(),
        })
    }

    /// Amazon's own service.
    pub(super) fn is_amazon(&self) -> bool {
        self.server.as_ref().is_none_or(|server| server.host.ends_with(".amazonaws.com"))
    }

    /// What is tried first.
    pub(super) fn route(&self) -> Route {
        Route { region: self.region.clone(), in_host: self.server.is_none() && self.fits_in_host() }
    }

    /// Whether the bucket can be a part of the host's name: that is no address, and a dot would not fit its
    /// certificate.
    pub(super) fn fits_in_host(&self) -> bool {
        let (is_name, tls) = match &self.server {
            Some(server) => (server.host.parse::<IpAddr>().is_err(), server.tls),
            None => (true, true),
        };
        is_name && (!tls || !self.bucket.contains('.')) && self.bucket.len() <= HOST_LABEL_MAX
    }

    /// The server that is asked.
    pub(super) fn endpoint(&self, route: &Route) -> Endpoint {
        let mut endpoint = self.server.clone().unwrap_or_else(|| {
            let domain = if route.region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
            Endpoint { tls: true, host: format!("s3.{}.{domain}", route.region), port: 443, path: String::new() }
        });
        if route.in_host {
            endpoint.host = format!("{}.{}", self.bucket, endpoint.host);
        }
        endpoint
    }

    /// The encoded path of an object, or of the bucket.
    pub(super) fn path(&self, route: &Route, name: Option<&str>) -> String {
        let before = self.server.as_ref().map_or("", |server| server.path.as_str());
        let bucket = if route.in_host { String::new() } else { format!("/{}", self.bucket) };
        match name {
            Some(name) => format!("{before}{bucket}/{}", encode(&self.key(name), true)),
            None if bucket.is_empty() => format!("{before}/"),
            None => format!("{before}{bucket}"),
        }
    }

    /// An object's key in the bucket.
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.base)
    }

    /// The storage class for an object, if it is not the usual one.
    pub(super) fn class(&self, name: &str) -> Option<&str> {
        let of = self.classes.iter().find(|(folder, _)| crate::name::is_below(name, folder));
        of.map(|(_, class)| class.as_str())
    }

    /// Whether any object is kept from being removed.
    pub(super) fn locks(&self) -> bool {
        self.lock.is_some()
    }

    /// For how long an object is kept from being removed, if it is.
    pub(super) fn lock(&self, name: &str) -> Option<ObjectLock> {
        let (lock, of) = self.lock.as_ref()?;
        of.iter().any(|of| name == of || crate::name::is_below(name, of)).then_some(*lock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(address: &str, endpoint: Option<&str>, variables: &[(&str, &str)]) -> Result<Settings, String> {
        let address = S3Address::parse(address.strip_prefix("s3:").unwrap()).unwrap();
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let user = User::new(variables, None);
        let around = Surroundings { endpoint: endpoint.map(str::to_owned), ..Surroundings::default() };
        Settings::new(&address, &around, &user, &Profile::read(&user)?)
    }

    fn url(settings: &Settings, name: Option<&str>) -> String {
        url_by(settings, &settings.route(), name)
    }

    fn url_by(settings: &Settings, route: &Route, name: Option<&str>) -> String {
        let endpoint = settings.endpoint(route);
        let path = settings.path(route, name);
        format!("{}{path}", endpoint.to_string().strip_suffix(&endpoint.path).unwrap())
    }

    #[test]
    fn who_is_asked_for_what() {
        let amazon = settings("s3://bucket/a b", None, &[("AWS_REGION", "eu-west-1")]).unwrap();
        assert_eq!(url(&amazon, Some("config")), "https://bucket.s3.eu-west-1.amazonaws.com/a%20b/config");
        assert_eq!(url(&amazon, None), "https://bucket.s3.eu-west-1.amazonaws.com/");
        let dotted = settings("s3://my.bucket", None, &[("AWS_DEFAULT_REGION", "cn-north-1")]).unwrap();
        assert_eq!(url(&dotted, Some("config")), "https://s3.cn-north-1.amazonaws.com.cn/my.bucket/config");
        assert!(amazon.is_amazon() && dotted.is_amazon());
        let all = [("AWS_ENDPOINT_URL", "https://c"), ("AWS_ENDPOINT_URL_S3", "https://b/x/")];
        let own = settings("s3://bucket/p", None, &all).unwrap();
        assert_eq!(url(&own, Some("a/b")), "https://b/x/bucket/p/a/b");
        assert_eq!(url(&own, None), "https://b/x/bucket");
        assert!(!own.is_amazon());
        let said = settings("s3://bucket/p", Some("https://a"), &all).unwrap();
        assert_eq!(url(&said, None), "https://a/bucket");
        let within = settings("s3:http://localhost:90/bucket", Some("https://a"), &all).unwrap();
        assert_eq!(url(&within, None), "http://localhost:90/bucket");
    }

    #[test]
    fn a_bucket_in_the_name_of_a_host() {
        for (server, bucket, with) in [
            ("https://s.example", "buc", Some("https://buc.s.example/p/config")),
            ("https://s.example:90/x/", "buc", Some("https://buc.s.example:90/x/p/config")),
            ("https://s.example", "my.buc", None),
            ("http://localhost", "my.buc", Some("http://my.buc.localhost/p/config")),
            ("http://127.0.0.1:90", "buc", None),
            ("https://[::1]", "buc", None),
            ("https://s.example", &"b".repeat(64), None),
        ] {
            let settings = settings(&format!("s3://{bucket}/p"), Some(server), &[]).unwrap();
            assert_eq!(settings.fits_in_host(), with.is_some(), "{server} {bucket}");
            let route = Route { in_host: true, ..settings.route() };
            assert!(!settings.route().in_host);
            if let Some(with) = with {
                assert_eq!(url_by(&settings, &route, Some("config")), with);
            }
        }
    }

    #[test]
    fn what_is_refused() {
        for (endpoint, region, part) in [
            ("http://10.0.0.1", "x", "--allow-http"),
            ("ftp://h", "x", "neither"),
            ("https://h", "x/../y", "AWS_REGION"),
        ] {
            let why = settings("s3://bucket", Some(endpoint), &[("AWS_REGION", region)]).err().unwrap();
            assert!(why.contains(part), "{why}");
        }
    }
}
