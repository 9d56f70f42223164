//! What a command notices of its repositories on the way: what is missing that was seen before, what was read by copies
//! or parity alone. It is told as it is found or at the end, and the exit status has it.

use super::Context;
use crate::exit::{Exit, plain, without_number};
use crate::place;
use crate::render::missing::{self, JsonMissing};
use crate::render::time::now;
use drumlin_repo::history::{Memory, Missing, Trouble};
use drumlin_repo::{Repository, names};
use serde::Serialize;
use std::sync::Arc;

/// A look under way: see [`Context::look`].
pub struct Looking(Option<std::thread::JoinHandle<drumlin_repo::Result<Missing>>>);

/// Packs that were damaged and could be read all the same.
#[derive(Serialize)]
struct JsonHealed<'a> {
    message_type: &'static str,
    packs: &'a [String],
    copies: &'a [String],
}

impl Context<'_> {
    /// Tell if what opened the repository is all that is left of the key: what it signs counts for nobody else.
    fn tell_key(&self, repository: &Repository) {
        if repository.lacks_its_key() {
            self.note_doubt();
            let advice = match repository.secrets().owner_signing {
                Some(_) => "'drumlin key passwd' with this recovery file makes it again",
                None => "ask the repository's owner for a new key",
            };
            let key = repository.secrets().key;
            self.out.caution(format!(
                "the object of key {key} is gone from the repository: other machines will not trust what this key signs; {advice}"
            ));
        }
    }

    /// The same repository, with what this client has seen of it.
    pub fn remembered(&self, repository: Repository) -> Repository {
        let memory = Arc::new(Memory::open(&repository, place::states().ok().as_deref()));
        if let (Some(trouble), Some(path)) = (memory.trouble(), memory.path()) {
            let path = path.display();
            match trouble {
                Trouble::Useless(why) => self.out.warn(format!(
                    "what this client has seen in the repository before is no longer known: '{path}': {why}"
                )),
                // A storage that went back in time would go unnoticed.
                Trouble::Unread(why) => {
                    self.note_doubt();
                    let why = without_number(&why);
                    self.out.caution(format!(
                        "the repository is not compared with what this client has seen in it before: cannot read '{path}': {why}"
                    ));
                }
            }
        }
        self.memories.borrow_mut().push(memory.clone());
        self.noted(repository.with_memory(memory))
    }

    /// The same repository, of which it is told at the end what could be read by its copies or parity alone.
    pub(super) fn noted(&self, repository: Repository) -> Repository {
        self.tell_key(&repository);
        self.opened.borrow_mut().push(repository.clone());
        repository
    }

    /// Tell if anything is missing in a repository that this client has seen; its keys are read, too, if wanted. The
    /// command goes on.
    pub fn heed(&self, repository: &Repository, keys: bool) {
        self.told(repository.look_back(now().0, keys));
    }

    /// As [`Context::heed`] with keys, while something else is asked of the storage.
    pub(super) fn heed_beside<T: Send>(&self, repository: &Repository, ask: impl FnOnce() -> T + Send) -> T {
        repository.ask_both(|| self.heed(repository, true), ask).1
    }

    /// Look whether anything is missing that this client has seen, while something else is done: [`Context::heard`]
    /// tells.
    pub fn look(&self, repository: &Repository) -> Looking {
        let looked = repository.clone();
        match std::thread::Builder::new().name("look-back".into()).spawn(move || looked.look_back(now().0, false)) {
            Ok(thread) => Looking(Some(thread)),
            Err(_) => {
                self.heed(repository, false);
                Looking(None)
            }
        }
    }

    /// Tell what has been found missing. To be called before anything new is remembered.
    pub fn heard(&self, looking: Looking) {
        // A panic there has ended the program.
        if let Some(Ok(looked)) = looking.0.map(std::thread::JoinHandle::join) {
            self.told(looked);
        }
    }

    fn told(&self, looked: drumlin_repo::Result<Missing>) {
        match looked {
            Ok(missing) if missing.is_empty() => {}
            Ok(missing) => {
                self.alarmed.set(true);
                match self.out.json() {
                    true => self.out.tell_err(&JsonMissing::from(&missing)),
                    false => self.out.alarm(&missing::words(&missing), missing::HINT),
                }
            }
            // The next command tells, which begins with the new secrets, unless the storage keeps them back until its
            // end, too.
            Err(drumlin_repo::Error::Rekeyed { .. }) => {
                self.note_doubt();
                self.out.caution(
                    "the repository was given new secrets meanwhile, and is not compared with what this client has seen in it before; the next command compares it",
                );
            }
            Err(e) => {
                self.alarmed.set(true);
                let message = format!("the repository can't be compared with what this client has seen of it: {e}");
                self.out.trouble_with("history", &message);
            }
        }
    }

    /// What is done is perhaps not what was meant: whoever looks at nothing but the status shall notice.
    pub fn note_doubt(&self) {
        self.passed_over.set(true);
    }

    /// With what to exit: whoever looks at nothing else shall notice.
    pub fn outcome(&self, exit: Exit) -> Exit {
        let passes_over = |repository: &Repository| !repository.passed_over().is_empty();
        if self.opened.borrow().iter().any(passes_over) {
            self.passed_over.set(true);
        }
        match exit {
            Exit::Done | Exit::Incomplete if self.alarmed.get() => Exit::Unexplained,
            Exit::Done if self.passed_over.get() => Exit::Incomplete,
            other => other,
        }
    }

    /// Keep what was seen. Failing that, it is told, and nothing else suffers.
    pub fn keep(&self) {
        for memory in self.memories.take() {
            if let (Err(e), Some(path)) = (memory.save(), memory.path()) {
                let (path, why) = (path.display(), plain(&e));
                self.out.warn(format!(
                    "what this client has seen in the repository can't be saved: cannot write '{path}': {why}"
                ));
            }
        }
    }

    /// Tell once of what was damaged and could be read all the same, and of what could not be kept.
    pub fn tell_healed(&self) {
        for repository in self.opened.borrow().iter() {
            for (name, cause) in repository.passed_over() {
                self.out.caution(format!(
                    "index object '{name}' can't be read, and was passed over: {cause}. What only it names was not found; 'drumlin repair' fixes that"
                ));
            }
            if repository.is_behind() {
                self.out.caution(
                    "the repository was given new secrets meanwhile, and what was moved since could not be found: what seems to be damaged or gone may be whole; run it again",
                );
            }
            if let Some(why) = repository.unkept() {
                let why = without_number(why);
                self.out.warn(format!(
                    "{why}; without the cache it takes longer: each run reads the index anew until it can be kept"
                ));
            }
            let is_pack = |name: &String| [names::DATA, names::TREE].iter().any(|folder| name.starts_with(folder));
            let (packs, others): (Vec<_>, Vec<_>) = repository.healed().into_iter().partition(is_pack);
            if self.out.json() && !(packs.is_empty() && others.is_empty()) {
                self.out.tell_err(&JsonHealed { message_type: "healed", packs: &packs, copies: &others });
                continue;
            }
            for name in others {
                let advice = "nothing is lost yet, and 'drumlin repair' restores it";
                self.out.warn(format!("'{name}' is damaged or gone, and its copy was read instead: {advice}"));
            }
            let Some(first) = packs.first() else { continue };
            let which = match packs.len() {
                1 => format!("pack '{first}' is damaged or gone, and was read through its parity or the index"),
                n => format!(
                    "{n} packs are damaged or gone, '{first}' among them, and were read through their parity or the index"
                ),
            };
            let advice = "what was read is intact, and 'drumlin repair --read-data' rewrites it";
            self.out.warn(format!("{which}: {advice}"));
        }
    }

    /// Let go of the repositories without a word more.
    pub fn let_go(&self) {
        self.opened.borrow_mut().clear();
    }

    /// Let go of the repositories, and tell what is to be told of them at the end: what comes next may be an unmount.
    pub fn close(&self) {
        self.keep();
        self.tell_healed();
        self.outcome(Exit::Done);
        self.let_go();
    }
}
