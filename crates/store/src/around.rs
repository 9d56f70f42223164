//! What a store may know of whoever uses it. Nothing here is looked for in the environment: it is handed over.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::{ObjectLock, Retries};

/// Asks a person for a secret: a prompt in, what was typed out; `None` if there is nobody to ask, or nothing was said.
pub type Ask = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Tells a person something that needs no answer.
pub type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// Whether whoever uses a store wants to stop: then a line that is down is not waited for.
pub type Stopped = Arc<dyn Fn() -> bool + Send + Sync>;

/// What a store may know of whoever uses it. By default: nothing.
#[derive(Clone, Default)]
pub struct Surroundings {
    /// The name to log in with if nothing else says one.
    pub user: String,
    /// The folder with `.ssh` in it.
    pub home: Option<PathBuf>,
    /// The socket of the user's ssh agent.
    pub agent: Option<PathBuf>,
    /// The user's ssh configuration, in place of `.ssh/config`, and of the system's.
    pub ssh_config: Option<PathBuf>,
    /// A command that logs in and speaks SFTP, in place of our own way to log in: `ssh`, with options of the user's.
    pub ssh_command: Option<String>,
    /// The server of S3 repositories whose address names none: a URL.
    pub endpoint: Option<String>,
    /// The variables of the environment whose names begin with `AWS_`, by which all programs for S3 are told of
    /// credentials and regions.
    pub aws: HashMap<String, String>,
    /// The variables of the environment whose names end with `_proxy`, in either case, by which all programs are told
    /// of proxies: S3's servers are asked by these.
    pub proxies: HashMap<String, String>,
    /// A server may be spoken to without TLS even if it is another machine.
    pub allow_http: bool,
    /// Folders of a repository whose objects are put into a storage class of S3, and the class.
    pub storage_classes: Vec<(String, String)>,
    /// Objects and folders of a repository in S3 that are kept from being removed, and for how long.
    pub object_lock: Option<(ObjectLock, Vec<String>)>,
    /// A repository is shown as it was then, in seconds since 1970, from the versions that a bucket keeps, and can't be
    /// changed.
    pub as_of: Option<i64>,
    /// Objects of the repository that will be read first: a store that is far away may ask for them as it connects.
    pub first: Vec<String>,
    /// Asks for passphrases and passwords.
    pub ask: Option<Ask>,
    /// Tells of a line that broke and is being mended.
    pub tell: Option<Tell>,
    /// Whether the user wants to stop.
    pub stopped: Option<Stopped>,
    /// Bytes a second that may be sent.
    pub upload_limit: Option<u64>,
    /// Bytes a second that may be received.
    pub download_limit: Option<u64>,
    /// How long a broken line is tried again.
    pub retries: Retries,
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").field("user", &self.user).field("home", &self.home).finish_non_exhaustive()
    }
}
