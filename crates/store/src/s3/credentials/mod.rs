//! Where access keys come from, in the order that is usual: the environment, a web identity, the profile in `~/.aws`,
//! the container, the machine. What is temporary is asked for again before it ends.

mod files;
mod service;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::http::{Pool, Proxies};
use super::sign::{Keys, Secret};
use super::time;
use crate::limit::Limits;
use crate::lock::lock;
pub(super) use files::Profile;

/// Temporary keys are replaced so many seconds before they end.
const BEFORE_THE_END: i64 = 300;

/// The variables of the environment whose names begin with `AWS_`, and where the user's files are.
#[derive(Clone, Default)]
pub(super) struct User {
    variables: HashMap<String, String>,
    home: Option<PathBuf>,
}

impl User {
    pub(super) fn new(variables: HashMap<String, String>, home: Option<PathBuf>) -> Self {
        User { variables, home }
    }

    /// A variable that is set, and not empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// A path as it is written in a setting: `~/` is the home folder.
    pub(super) fn path(&self, text: &str) -> PathBuf {
        match (text.strip_prefix("~/"), &self.home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => PathBuf::from(text),
        }
    }

    /// Certificates to trust in, in place of the system's.
    pub(super) fn bundle(&self, profile: &Profile) -> Option<PathBuf> {
        self.get("AWS_CA_BUNDLE").or_else(|| profile.get("ca_bundle")).map(|path| self.path(path))
    }

    fn file(&self, variable: &str, name: &str) -> Option<PathBuf> {
        match self.get(variable) {
            Some(path) => Some(PathBuf::from(path)),
            None => Some(self.home.as_ref()?.join(".aws").join(name)),
        }
    }
}

/// Why there are no keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoKeys {
    /// In words; it won't be otherwise the next time.
    Never(String),
    /// In words; it may pass.
    Passing(String),
}

/// All sources, and the keys that one of them gave.
pub(super) struct Chain {
    user: User,
    profile: Profile,
    /// Amazon's own service: keys of this machine are for nobody else.
    is_amazon: bool,
    /// For the service that exchanges identities.
    pool: Pool,
    known: Mutex<Option<Arc<Keys>>>,
}

impl Chain {
    pub(super) fn new(user: User, profile: Profile, is_amazon: bool, proxies: Arc<Proxies>) -> Self {
        let pool = Pool::new(Limits::default(), user.bundle(&profile), proxies);
        Chain { user, profile, is_amazon, pool, known: Mutex::default() }
    }

    /// The keys; those that were found before as long as they count.
    pub(super) fn keys(&self) -> Result<Arc<Keys>, NoKeys> {
        let mut known = lock(&self.known);
        if let Some(keys) = &*known
            && keys.expires.is_none_or(|end| end - BEFORE_THE_END > time::now())
        {
            return Ok(keys.clone());
        }
        match (self.find(), &*known) {
            (Ok(keys), _) => Ok(known.insert(Arc::new(keys)).clone()),
            // The old ones still count for a while, whatever the source says now.
            (Err(_), Some(keys)) if keys.expires.is_some_and(|end| end > time::now()) => Ok(keys.clone()),
            // What has given keys may give some again.
            (Err(NoKeys::Never(why)), Some(_)) => Err(NoKeys::Passing(why)),
            (Err(none), _) => Err(none),
        }
    }

    /// The server says that these have ended: whether there are others now.
    pub(super) fn are_others(&self, ended: &Arc<Keys>) -> bool {
        let mut known = lock(&self.known);
        if known.as_ref().is_some_and(|keys| !Arc::ptr_eq(keys, ended)) {
            return true;
        }
        match self.find() {
            Ok(keys) if keys != **ended => {
                *known = Some(Arc::new(keys));
                true
            }
            _ => false,
        }
    }

    fn find(&self) -> Result<Keys, NoKeys> {
        if let Some(keys) = self.environment()? {
            return Ok(keys);
        }
        if let Some(keys) = self.web_identity(self.region())? {
            return Ok(keys);
        }
        // As it is now: whoever logs in again has the files written anew.
        let profile = Profile::read(&self.user).map_err(NoKeys::Never)?;
        if let Some(keys) = profile.keys()? {
            return Ok(keys);
        }
        if let Some(keys) = self.container()? {
            return Ok(keys);
        }
        if self.is_amazon
            && let Some(keys) = self.instance()?
        {
            return Ok(keys);
        }
        let tried = "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or have them in ~/.aws/credentials";
        Err(NoKeys::Never(match self.profile.name() {
            "default" => tried.to_owned(),
            name => format!("{tried}, where the profile '{name}' has none"),
        }))
    }

    fn region(&self) -> &str {
        let variables = ["AWS_REGION", "AWS_DEFAULT_REGION"].into_iter().find_map(|name| self.user.get(name));
        variables.or_else(|| self.profile.get("region")).unwrap_or("us-east-1")
    }

    fn environment(&self) -> Result<Option<Keys>, NoKeys> {
        match (self.user.get("AWS_ACCESS_KEY_ID"), self.user.get("AWS_SECRET_ACCESS_KEY")) {
            (None, None) => Ok(None),
            (Some(_), None) => Err(NoKeys::Never("AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY isn't".into())),
            (None, Some(_)) => Err(NoKeys::Never("AWS_SECRET_ACCESS_KEY is set, and AWS_ACCESS_KEY_ID isn't".into())),
            (Some(id), Some(secret)) => {
                let token = self.user.get("AWS_SESSION_TOKEN").map(str::to_owned);
                Ok(Some(keys(id.to_owned(), secret.to_owned(), token, None, "the environment")))
            }
        }
    }
}

fn keys(id: String, secret: String, token: Option<String>, expires: Option<i64>, source: &str) -> Keys {
    Keys {
        id: Secret::new(id),
        secret: Secret::new(secret),
        token: token.map(Secret::new),
        expires,
        source: source.to_owned(),
    }
}

/// Keys as programs and services hand them out: a JSON object with these fields.
fn of_json(text: &[u8], token: &str, source: &str) -> Result<Keys, String> {
    // What is wrong with it is not told by the parser's words: they might show a part of it.
    let value: serde_json::Value = serde_json::from_slice(text).map_err(|_| format!("{source} gives no JSON"))?;
    let field = |name: &str| value.get(name).and_then(|value| value.as_str()).map(str::to_owned);
    match (field("AccessKeyId"), field("SecretAccessKey")) {
        (Some(id), Some(secret)) => {
            let expires = field("Expiration").and_then(|end| time::iso(&end));
            Ok(keys(id, secret, field(token), expires, source))
        }
        _ => Err(format!("{source} gives no access key")),
    }
}

#[cfg(test)]
mod tests;
