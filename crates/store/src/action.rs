//! What is tried on a storage.

use std::fmt;

/// What was tried: whoever decides what to do about a failure goes by this and by its kind, never by the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Reach the server.
    Connect,
    /// Start the program that reaches it, or speaks for it.
    RunProgram,
    /// Log in to the server.
    LogIn,
    /// Find the bucket.
    FindBucket,
    /// Open the repository's folder, or an object.
    Open,
    /// Make the repository's folder.
    CreateRepository,
    /// Make a folder, or an object of a name that nobody has.
    Create,
    /// Look whether an object is there, and how long it is.
    Find,
    /// List a folder.
    List,
    /// Read an object.
    Read,
    /// Write an object.
    Write,
    /// Make durable what was written.
    Persist,
    /// Remove an object.
    Delete,
    /// Have an object brought back from cold storage.
    Thaw,
    /// Keep an object from being removed for a time.
    Lock,
}

impl Action {
    /// The words that stand between "cannot" and the object.
    pub fn words(self) -> &'static str {
        match self {
            Action::Connect => "connect to",
            Action::RunProgram => "run the program of",
            Action::LogIn => "log in to",
            Action::FindBucket => "find the bucket of",
            Action::Open => "open",
            Action::CreateRepository => "create a repository in",
            Action::Create => "create",
            Action::Find => "find",
            Action::List => "list",
            Action::Read => "read",
            Action::Write => "write",
            Action::Persist => "make durable what was written",
            Action::Delete => "delete",
            Action::Thaw => "thaw",
            Action::Lock => "lock",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}
