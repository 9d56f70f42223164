//! Logging in: what has worked before, the agent's keys, files of keys, and then questions to a person, if there is
//! one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use russh::client::{AuthResult, Handle, KeyboardInteractiveAuthResponse};
use russh::keys::agent::AgentIdentity;
use russh::keys::agent::client::AgentClient;
use russh::keys::{Algorithm, HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKey};
use russh::{MethodKind, MethodSet};
use tokio::net::UnixStream;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::keys::{self, KeyFile};
use super::route::Hop;
use super::server::{Client, Shaken};
use super::wait::{Wait, within};
use super::{Failure, Inner, Occasion};
use crate::around::Ask;
use crate::legible::legible;
use crate::lock::lock;
use crate::sftp::peer::Line;
use crate::{Action, Kind};

/// A passphrase or a password may be mistyped so often.
const ATTEMPTS: usize = 3;
/// An agent has so long for an answer, and its user for a word or a touch.
const AT_HAND: Duration = Duration::from_secs(60);
/// So many proofs may be wanted one after another (`AuthenticationMethods`).
const PROOFS_MAX: usize = 5;
/// Rounds of questions that a server may ask.
const ROUNDS_MAX: usize = 10;
/// So many characters of one are shown: it is shorter.
const QUESTION_MAX: usize = 1000;

/// What a server has accepted.
#[derive(Clone)]
pub(super) enum Proof {
    /// A key of the agent.
    Agent(PublicKey),
    Key(Arc<PrivateKey>),
    Password(Zeroizing<String>),
    /// What a person answered to its questions.
    Answers(Answers),
}

/// Questions, and their answers.
type Answers = Vec<(String, Zeroizing<String>)>;

/// A login under way.
struct Attempt<'a> {
    hop: &'a Hop,
    line: &'a Line,
    session: Handle<Client>,
    /// Who answers, if anybody is to be asked.
    ask: Option<Ask>,
    /// What has been tried, for the message if nothing helps.
    tried: Vec<String>,
    /// What the server would still take; `None` before it has said anything.
    takes: Option<MethodSet>,
    /// What the server has accepted by now: it may want more.
    proofs: Vec<Proof>,
    /// Answers that were accepted before were refused now.
    has_worn: bool,
    /// Why it may be somebody else, who is told no secret.
    doubt: Option<String>,
}

/// Log in to the hop of this number.
pub(super) async fn login(
    inner: &Inner,
    occasion: Occasion,
    at: usize,
    line: &Line,
    Shaken { session, ended, doubt }: Shaken,
) -> Result<Handle<Client>, Failure> {
    let hop = inner.hops.get(at).ok_or_else(|| Failure::new(Kind::Io, Action::LogIn, "there is no host"))?;
    let known = lock(&inner.proofs).get(at).cloned().unwrap_or_default();
    // Nobody sits there for the whole of a run, only to let it be faster.
    let ask = inner.ask.clone().filter(|_| occasion != Occasion::More && hop.config.batch_mode != Some(true));
    let doubt = lock(&doubt).clone();
    let (tried, takes, proofs, has_worn) = (Vec::new(), None, Vec::new(), false);
    let mut attempt = Attempt { hop, line, session, ask, tried, takes, proofs, has_worn, doubt };
    let accepted = attempt.all(known).await?;
    if attempt.has_worn {
        inner.answers_wear.store(true, Ordering::Relaxed);
    }
    let wear = inner.answers_wear.load(Ordering::Relaxed);
    if let Some(slot) = lock(&inner.proofs).get_mut(at)
        && (accepted || attempt.has_worn)
    {
        if accepted {
            *slot = std::mem::take(&mut attempt.proofs);
        }
        slot.retain(|proof| !(wear && matches!(proof, Proof::Answers(_))));
    }
    if accepted {
        return Ok(attempt.session);
    }
    if attempt.session.is_closed() {
        // Whoever has closed it says so in a moment.
        for _ in 0..100 {
            if lock(&ended).is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let ended = lock(&ended).take();
    Err(match ended {
        Some(Err(why)) => broken(why),
        ended => attempt.refused(ended.and_then(Result::ok)),
    })
}

fn broken(error: impl std::fmt::Display) -> Failure {
    Failure::new(Kind::Transient, Action::LogIn, format!("the connection broke: {error}"))
}

impl Attempt<'_> {
    /// Try everything, in order; and again as long as the server accepts something and wants more.
    async fn all(&mut self, known: Vec<Proof>) -> Result<bool, Failure> {
        for proof in &known {
            if self.again(proof).await? {
                return Ok(true);
            }
        }
        for _ in 0..PROOFS_MAX {
            let before = self.proofs.len();
            if self.agent(None).await? || self.files().await? || self.questions().await? {
                return Ok(true);
            }
            if self.proofs.len() == before {
                break;
            }
        }
        Ok(false)
    }

    /// Try what was accepted before.
    async fn again(&mut self, proof: &Proof) -> Result<bool, Failure> {
        match proof {
            Proof::Key(key) => self.key(key.clone()).await,
            Proof::Password(password) => self.password(password.clone()).await,
            Proof::Agent(key) => self.agent(Some(key.clone())).await,
            // Codes that count once are asked for anew.
            Proof::Answers(answers) if self.takes(MethodKind::KeyboardInteractive) => {
                let before = self.proofs.len();
                let again = self.interactive(Some(answers)).await?;
                self.has_worn |= self.proofs.len() == before;
                Ok(again)
            }
            Proof::Answers(_) => Ok(false),
        }
    }

    /// `ended` is what the server said when it hung up.
    fn refused(&self, ended: Option<String>) -> Failure {
        let takes: Vec<&str> = self.takes.iter().flat_map(|takes| takes.iter()).map(<&str>::from).collect();
        let tried = match self.tried.is_empty() {
            true => "there was nothing to try: no agent, no key file, and nobody to ask".to_owned(),
            false => format!("tried without success: {}", self.tried.join(", ")),
        };
        let takes = if takes.is_empty() { String::new() } else { format!("; it takes {}", takes.join(" or ")) };
        let closed = ended.map(|words| format!("; it hung up, saying: {words}")).unwrap_or_default();
        let doubt = match &self.doubt {
            Some(why) => format!("; no password or answer is given to it, for {why}"),
            None => String::new(),
        };
        let more = if self.proofs.is_empty() { "" } else { "; a part of what it wants was accepted" };
        let silent = match self.hop.config.batch_mode {
            Some(true) => "; nobody was asked (BatchMode)",
            _ => "",
        };
        let Hop { user, .. } = self.hop;
        let (host, notes) = (self.hop.shown(), self.hop.notes(true));
        let cause = format!("{host} doesn't let '{user}' in; {tried}{more}{takes}{silent}{doubt}{closed}{notes}");
        Failure::new(Kind::Refused, Action::LogIn, cause)
    }

    /// Whether the server takes a method, as far as it has said, and may be shown what that shows.
    fn takes(&self, method: MethodKind) -> bool {
        // A signature is worth nothing elsewhere, but a password is.
        if self.doubt.is_some() && method != MethodKind::PublicKey {
            return false;
        }
        !self.session.is_closed() && self.takes.as_ref().is_none_or(|takes| takes.contains(&method))
    }

    /// Whether this was the last proof that the server wanted.
    fn note(&mut self, result: AuthResult, proof: Proof) -> bool {
        match result {
            AuthResult::Success => {
                self.proofs.push(proof);
                true
            }
            AuthResult::Failure { remaining_methods, partial_success } => {
                if partial_success {
                    self.proofs.push(proof);
                }
                // A server that has hung up says nothing, which is no news of what it takes.
                if !remaining_methods.is_empty() {
                    self.takes = Some(remaining_methods);
                }
                false
            }
        }
    }

    /// Whether a key has been accepted already: no server wants the same one twice.
    fn is_accepted(&self, key: &PublicKey) -> bool {
        self.proofs.iter().any(|proof| match proof {
            Proof::Agent(other) => other.key_data() == key.key_data(),
            Proof::Key(other) => other.public_key().key_data() == key.key_data(),
            Proof::Password(_) | Proof::Answers(_) => false,
        })
    }

    /// Note what was tried in vain, unless the server has accepted more than `before`.
    fn vain(&mut self, before: usize, what: String) {
        if self.proofs.len() == before && !self.tried.contains(&what) {
            self.tried.push(what);
        }
    }

    async fn hash(&self, algorithm: &Algorithm) -> Option<HashAlg> {
        match algorithm {
            Algorithm::Rsa { .. } => {
                let best = timeout(self.hop.answer_timeout(), self.session.best_supported_rsa_hash()).await;
                let best = best.ok().and_then(Result::ok).flatten();
                // A server that doesn't say knows SHA-2 all the same, unless it is older than 2016.
                best.unwrap_or(Some(HashAlg::Sha512))
            }
            _ => None,
        }
    }

    async fn key(&mut self, key: Arc<PrivateKey>) -> Result<bool, Failure> {
        if !self.takes(MethodKind::PublicKey) || self.is_accepted(key.public_key()) {
            return Ok(false);
        }
        let hash = self.hash(&key.algorithm()).await;
        let with = PrivateKeyWithHashAlg::new(key.clone(), hash);
        let limit = self.hop.answer_timeout();
        let result = within(limit, self.line, self.session.authenticate_publickey(self.hop.user.clone(), with))
            .await
            .map_err(|wait| wait.failure(limit))?;
        Ok(self.note(result, Proof::Key(key)))
    }

    /// The agent's keys: all, those that the configuration names, or one alone.
    async fn agent(&mut self, only: Option<PublicKey>) -> Result<bool, Failure> {
        let Some(socket) = &self.hop.agent else { return Ok(false) };
        let Ok(stream) = UnixStream::connect(socket).await else {
            self.tried.push("an agent that doesn't answer".into());
            return Ok(false);
        };
        let mut agent = AgentClient::connect(stream);
        if let Some(binding) = self.session.agent_session_binding() {
            // An agent that doesn't know this needs it not.
            let _ = timeout(AT_HAND, agent.bind_session(binding, false)).await;
        }
        let Ok(Ok(identities)) = timeout(AT_HAND, agent.request_identities()).await else {
            self.tried.push("an agent that gives no keys".into());
            return Ok(false);
        };
        let named: Vec<PublicKey> = self.hop.identities.iter().filter_map(|path| keys::public(path)).collect();
        let place = |key: &PublicKey| named.iter().position(|named| named.key_data() == key.key_data());
        let is_meant = |key: &PublicKey| match &only {
            Some(only) => only.key_data() == key.key_data(),
            None => self.hop.config.identities_only != Some(true) || place(key).is_some(),
        };
        let mut offered: Vec<PublicKey> = identities
            .into_iter()
            .filter_map(|identity| match identity {
                AgentIdentity::PublicKey { key, .. } => Some(key),
                _ => None,
            })
            .filter(|key| is_meant(key) && !self.is_accepted(key))
            .collect();
        // Those that are named come first: a server has enough after some (`MaxAuthTries`).
        offered.sort_by_key(|key| place(key).unwrap_or(usize::MAX));
        let (mut tried, before) = (0, self.proofs.len());
        for key in offered {
            if !self.takes(MethodKind::PublicKey) {
                break;
            }
            tried += 1;
            let hash = self.hash(&key.algorithm()).await;
            let user = self.hop.user.clone();
            // An agent may ask its user first, and a token wants to be touched.
            let limit = self.hop.answer_timeout() + AT_HAND;
            let answer = self.session.authenticate_publickey_with(user, key.clone(), hash, &mut agent);
            match within(limit, self.line, answer).await {
                Ok(result) => {
                    if self.note(result, Proof::Agent(key)) {
                        return Ok(true);
                    }
                }
                // An agent may decline to sign with this key, and not with the next.
                Err(Wait::Failed(_)) => {}
                Err(wait) => return Err(wait.failure(limit)),
            }
        }
        if only.is_none() && tried > 0 {
            self.vain(before, format!("{tried} {} of the agent", if tried == 1 { "key" } else { "keys" }));
        }
        Ok(false)
    }

    /// Files of keys; those that take a passphrase last.
    async fn files(&mut self) -> Result<bool, Failure> {
        let mut locked = Vec::new();
        for path in self.hop.identities.clone() {
            if !self.takes(MethodKind::PublicKey) {
                break;
            }
            let (shown, before) = (path.display().to_string(), self.proofs.len());
            match keys::read(&path) {
                KeyFile::None => {}
                KeyFile::Useless(why) => self.vain(before, format!("{shown} (it can't be used: {why})")),
                KeyFile::Locked(text) => locked.push((shown, text)),
                KeyFile::Ready(key) => {
                    if self.key(key).await? {
                        return Ok(true);
                    }
                    self.vain(before, shown);
                }
            }
        }
        for (shown, text) in locked {
            if !self.takes(MethodKind::PublicKey) {
                break;
            }
            let before = self.proofs.len();
            let mut unlocked = None;
            for _ in 0..ATTEMPTS {
                let Some(passphrase) = self.ask(format!("passphrase of the ssh key {shown}: ")).await else { break };
                unlocked = keys::unlock(&text, &passphrase);
                if unlocked.is_some() {
                    break;
                }
            }
            match unlocked {
                None => self.vain(before, format!("{shown} (locked by a passphrase)")),
                Some(key) => {
                    if self.key(key).await? {
                        return Ok(true);
                    }
                    self.vain(before, shown);
                }
            }
        }
        Ok(false)
    }

    async fn questions(&mut self) -> Result<bool, Failure> {
        if self.ask.is_none() {
            return Ok(false);
        }
        if self.takes(MethodKind::KeyboardInteractive) {
            let before = self.proofs.len();
            if self.interactive(None).await? {
                return Ok(true);
            }
            self.vain(before, "answers to its questions".into());
        }
        let before = self.proofs.len();
        for _ in 0..ATTEMPTS {
            if !self.takes(MethodKind::Password) || self.proofs.len() > before {
                return Ok(false);
            }
            let Some(password) = self.ask(format!("password of {}@{}: ", self.hop.user, self.hop.shown())).await else {
                return Ok(false);
            };
            if self.password(password).await? {
                return Ok(true);
            }
        }
        self.vain(before, "a password".into());
        Ok(false)
    }

    async fn password(&mut self, password: Zeroizing<String>) -> Result<bool, Failure> {
        if !self.takes(MethodKind::Password) {
            return Ok(false);
        }
        let (user, typed) = (self.hop.user.clone(), password.to_string());
        let limit = self.hop.answer_timeout();
        let result = within(limit, self.line, self.session.authenticate_password(user, typed))
            .await
            .map_err(|wait| wait.failure(limit))?;
        Ok(self.note(result, Proof::Password(password)))
    }

    /// `known`: the answers that it took before. Nobody is asked then.
    async fn interactive(&mut self, known: Option<&Answers>) -> Result<bool, Failure> {
        let (mut given, mut said) = (Answers::new(), String::new());
        let user = self.hop.user.clone();
        let limit = self.hop.answer_timeout();
        let start = self.session.authenticate_keyboard_interactive_start(user, None::<String>);
        let mut response = within(limit, self.line, start).await.map_err(|wait| wait.failure(limit))?;
        for _ in 0..ROUNDS_MAX {
            match response {
                KeyboardInteractiveAuthResponse::Success => {
                    return Ok(self.note(AuthResult::Success, Proof::Answers(given)));
                }
                KeyboardInteractiveAuthResponse::Failure { remaining_methods, partial_success } => {
                    let failed = AuthResult::Failure { remaining_methods, partial_success };
                    return Ok(self.note(failed, Proof::Answers(given)));
                }
                KeyboardInteractiveAuthResponse::InfoRequest { name, instructions, prompts } => {
                    // What is said without a question is shown with the next one.
                    said = format!("{said} {name} {instructions}");
                    let mut answers = Vec::new();
                    for prompt in prompts {
                        let asked = legible(&format!("{} {}", std::mem::take(&mut said), prompt.prompt), QUESTION_MAX);
                        let question = format!("{}: {asked} ", self.hop.shown());
                        let answer = match known {
                            None => self.ask(question.clone()).await,
                            Some(known) => known.iter().find(|(asked, _)| *asked == question).map(|(_, a)| a.clone()),
                        };
                        let Some(answer) = answer else { return Ok(false) };
                        answers.push(answer.to_string());
                        given.push((question, answer));
                    }
                    let respond = self.session.authenticate_keyboard_interactive_respond(answers);
                    response = within(limit, self.line, respond).await.map_err(|wait| wait.failure(limit))?;
                }
            }
        }
        Ok(false)
    }

    /// Ask a person. It may take long, and other connections shall not wait for it.
    async fn ask(&self, prompt: String) -> Option<Zeroizing<String>> {
        let ask = self.ask.clone()?;
        let asked = tokio::task::spawn_blocking(move || ask(&prompt).map(Zeroizing::new)).await;
        asked.ok().flatten().filter(|answer| !answer.is_empty())
    }
}
