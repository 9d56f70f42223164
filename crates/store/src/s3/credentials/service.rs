//! Keys that a service hands out: to whoever can show a token, to a container, to a machine of Amazon's.

use std::io;
use std::time::Duration;

use super::{Chain, NoKeys, keys, of_json};
use crate::s3::http::{Endpoint, Pool, Request, Response};
use crate::s3::sign::{Keys, encode};
use crate::s3::{time, xml};

/// Where machines of Amazon's are told about themselves.
const INSTANCE: &str = "http://169.254.169.254";
const CONTAINER: &str = "http://169.254.170.2";
/// These services are next door, or not there at all.
const PATIENCE: Duration = Duration::from_secs(2);
const ANSWER_BYTES_MAX: usize = 64 << 10;

fn ask(
    endpoint: &Endpoint,
    method: &'static str,
    target: &str,
    mut headers: Vec<(&str, String)>,
) -> io::Result<Response> {
    headers.push(("host", endpoint.authority()));
    let request = Request { method, target, headers: &headers, body: b"" };
    Pool::once(endpoint, &request, PATIENCE, ANSWER_BYTES_MAX)
}

impl Chain {
    /// `AWS_WEB_IDENTITY_TOKEN_FILE` and `AWS_ROLE_ARN`, as Kubernetes sets them.
    pub(super) fn web_identity(&self, region: &str) -> Result<Option<Keys>, NoKeys> {
        let (Some(file), Some(role)) = (self.user.get("AWS_WEB_IDENTITY_TOKEN_FILE"), self.user.get("AWS_ROLE_ARN"))
        else {
            return Ok(None);
        };
        let token = std::fs::read_to_string(file)
            .map_err(|error| NoKeys::Never(format!("the token in '{file}' can't be read: {error}")))?;
        let url = match self.user.get("AWS_ENDPOINT_URL_STS") {
            Some(url) => url.to_owned(),
            None => format!("https://sts.{region}.amazonaws.com"),
        };
        let endpoint = Endpoint::parse(&url).map_err(NoKeys::Never)?;
        if !endpoint.tls && !endpoint.is_loopback() {
            return Err(NoKeys::Never(format!("a token is not sent to {endpoint} in the clear: use https://")));
        }
        let session = self.user.get("AWS_ROLE_SESSION_NAME").unwrap_or("drumlin");
        let body = format!(
            "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn={}&RoleSessionName={}&WebIdentityToken={}",
            encode(role, false),
            encode(session, false),
            encode(token.trim(), false)
        );
        let headers =
            [("content-type", "application/x-www-form-urlencoded".to_owned()), ("host", endpoint.authority())];
        let request = Request { method: "POST", target: "/", headers: &headers, body: body.as_bytes() };
        let response = self
            .pool
            .call(&endpoint, &request, &|_| ANSWER_BYTES_MAX, &mut 0)
            .map_err(|broken| NoKeys::Passing(format!("{endpoint} doesn't answer: {}", broken.error)))?;
        let text = String::from_utf8_lossy(&response.body);
        if response.status != 200 {
            let why = xml::text(&text, "Message").unwrap_or_else(|| format!("status {}", response.status));
            let words = format!("{endpoint} gives no credentials for the role '{role}': {why}");
            return Err(if response.status >= 500 { NoKeys::Passing(words) } else { NoKeys::Never(words) });
        }
        let field = |name: &str| xml::text(&text, name);
        match (field("AccessKeyId"), field("SecretAccessKey"), field("SessionToken")) {
            (Some(id), Some(secret), token) => {
                let expires = field("Expiration").and_then(|end| time::iso(&end));
                Ok(Some(keys(id, secret, token, expires, "the web identity")))
            }
            _ => Err(NoKeys::Never(format!("{endpoint} gives no credentials for the role '{role}'"))),
        }
    }

    /// What Amazon's container services set: a URL, and what to show there.
    pub(super) fn container(&self) -> Result<Option<Keys>, NoKeys> {
        let url = match (
            self.user.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
            self.user.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"),
        ) {
            (Some(path), _) => format!("{CONTAINER}{path}"),
            (None, Some(url)) => url.to_owned(),
            (None, None) => return Ok(None),
        };
        let start = url.find("://").map_or(0, |at| at + 3);
        let path = url[start..].find('/').map_or(url.len(), |at| start + at);
        let endpoint = Endpoint::parse(&url[..path]).map_err(NoKeys::Never)?;
        let own = ["169.254.170.2", "169.254.170.23", "fd00:ec2::23"].contains(&endpoint.host.as_str());
        if !endpoint.tls && !endpoint.is_loopback() && !own {
            return Err(NoKeys::Never(format!("credentials are not taken from {endpoint} in the clear")));
        }
        let token = match (
            self.user.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
            self.user.get("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
        ) {
            (Some(file), _) => Some(
                std::fs::read_to_string(file)
                    .map_err(|error| NoKeys::Never(format!("the token in '{file}' can't be read: {error}")))?,
            ),
            (None, token) => token.map(str::to_owned),
        };
        let headers = token.map(|token| ("authorization", token.trim().to_owned())).into_iter().collect();
        let target = if path == url.len() { "/" } else { &url[path..] };
        let response = match endpoint.tls {
            false => ask(&endpoint, "GET", target, headers),
            true => {
                let mut headers = headers;
                headers.push(("host", endpoint.authority()));
                let request = Request { method: "GET", target, headers: &headers, body: b"" };
                self.pool.call(&endpoint, &request, &|_| ANSWER_BYTES_MAX, &mut 0).map_err(|broken| broken.error)
            }
        };
        let source = "the container's service of credentials";
        match response {
            Ok(response) if response.status == 200 => {
                of_json(&response.body, "Token", source).map(Some).map_err(NoKeys::Never)
            }
            Ok(response) => Err(NoKeys::Passing(format!("{source} answers with status {}", response.status))),
            Err(error) => Err(NoKeys::Passing(format!("{source} doesn't answer: {error}"))),
        }
    }

    /// The role of a machine of Amazon's (instance metadata, version 2). None where there is no such service.
    pub(super) fn instance(&self) -> Result<Option<Keys>, NoKeys> {
        if self.user.get("AWS_EC2_METADATA_DISABLED").is_some_and(|set| set.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let url = self.user.get("AWS_EC2_METADATA_SERVICE_ENDPOINT").unwrap_or(INSTANCE);
        let endpoint = Endpoint::parse(url).map_err(NoKeys::Never)?;
        let ttl = vec![("x-aws-ec2-metadata-token-ttl-seconds", "21600".to_owned())];
        // Where nobody answers, this is no such machine.
        let Ok(token) = ask(&endpoint, "PUT", "/latest/api/token", ttl) else { return Ok(None) };
        if token.status != 200 {
            return Ok(None);
        }
        let token = String::from_utf8_lossy(&token.body).trim().to_owned();
        let get = |target: &str| {
            let headers = vec![("x-aws-ec2-metadata-token", token.clone())];
            let failed = |why: String| NoKeys::Passing(format!("this machine's service of credentials {why}"));
            match ask(&endpoint, "GET", target, headers) {
                Ok(response) if response.status == 404 => Ok(None),
                Ok(response) if response.status == 200 => Ok(Some(response.body)),
                Ok(response) => Err(failed(format!("answers with status {}", response.status))),
                Err(error) => Err(failed(format!("doesn't answer: {error}"))),
            }
        };
        const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
        let Some(roles) = get(ROLES)? else { return Ok(None) };
        let Some(role) = String::from_utf8_lossy(&roles).lines().next().map(|role| role.trim().to_owned()) else {
            return Ok(None);
        };
        let Some(found) = get(&format!("{ROLES}{}", encode(&role, false)))? else { return Ok(None) };
        of_json(&found, "Token", "this machine's role").map(Some).map_err(NoKeys::Never)
    }
}
