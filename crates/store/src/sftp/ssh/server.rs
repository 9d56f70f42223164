//! The handshake with a server, and whether its key is the one that is known.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};

use russh::client::{self, Handle};
use russh::keys::{Algorithm, Certificate, HashAlg, PublicKey, PublicKeyOrCertificate};
use russh::{ChannelId, Preferred, SshId, cipher, compression};

use super::config::Strict;
use super::known::{Known, Verdict, learn};
use super::route::Hop;
use super::stream::Heard;
use super::wait::{Wait, within};
use super::{Failure, Inner};
use crate::around::Tell;
use crate::lock::lock;
use crate::sftp::peer::Line;
use crate::{Action, Kind};

/// What a server may send before it hears from us: what was asked for, and no more comes anyway.
const WINDOW_BYTES: u32 = 64 << 20;
const PACKET_BYTES: u32 = 65_535;

/// The fast ones first: with AES in hardware, GCM carries twice what ChaCha20 does.
const CIPHERS: &[cipher::Name] = &[
    cipher::AES_256_GCM,
    cipher::AES_128_GCM,
    cipher::CHACHA20_POLY1305,
    cipher::AES_256_CTR,
    cipher::AES_192_CTR,
    cipher::AES_128_CTR,
];

/// Our side of a session.
pub(super) struct Client {
    hop: Hop,
    known: Known,
    tell: Option<Tell>,
    /// Why the server's key was refused.
    refused: Arc<Mutex<Option<Failure>>>,
    ended: Ended,
    doubt: Doubt,
    line: Arc<Line>,
}

/// How a session has ended: with the server's own words, or because the line broke.
pub(super) type Ended = Arc<Mutex<Option<Result<String, String>>>>;

/// Why a server, though it is logged in to, may not be the one that is meant: it is told no secret then.
pub(super) type Doubt = Arc<Mutex<Option<String>>>;

/// A server that we have shaken hands with.
pub(super) struct Shaken {
    pub session: Handle<Client>,
    pub ended: Ended,
    pub doubt: Doubt,
}

/// Shake hands.
pub(super) async fn connect(inner: &Inner, hop: &Hop, stream: Heard) -> Result<Shaken, Failure> {
    let line = stream.line();
    let known = Known::read(&hop.known).map_err(|why| Failure::new(Kind::Refused, Action::Connect, why))?;
    let config = client::Config {
        client_id: SshId::Standard(Cow::Borrowed(concat!("SSH-2.0-drumlin_", env!("CARGO_PKG_VERSION")))),
        window_size: WINDOW_BYTES,
        maximum_packet_size: PACKET_BYTES,
        preferred: preferred(&known),
        keepalive_interval: hop.alive_interval(),
        // We count ourselves.
        keepalive_max: 0,
        ..client::Config::default()
    };
    let refused = Arc::new(Mutex::new(None));
    let (ended, doubt) = (Ended::default(), Doubt::default());
    let (tell, refusal) = (inner.tell.clone(), refused.clone());
    let client = Client {
        hop: hop.clone(),
        known,
        tell,
        refused: refusal,
        ended: ended.clone(),
        doubt: doubt.clone(),
        line: line.clone(),
    };
    let connected = within(hop.answer_timeout(), &line, client::connect_stream(Arc::new(config), stream, client)).await;
    let told = |kind, cause: String| Failure::new(kind, Action::Connect, format!("{cause}{}", hop.notes(true)));
    match connected {
        Err(Wait::Silent) => Err(told(Kind::Transient, format!("{} didn't shake hands in time", hop.shown()))),
        Ok(session) => Ok(Shaken { session, ended, doubt }),
        Err(Wait::Over) => Err(told(Kind::Transient, format!("{} broke off the handshake", hop.shown())).turned_away()),
        Err(Wait::Failed(error)) => Err(lock(&refused).take().unwrap_or_else(|| match error {
            russh::Error::NoCommonAlgo { kind, theirs, .. } => {
                let theirs = theirs.join(", ").escape_debug().to_string();
                told(
                    Kind::Refused,
                    format!("{} and this program have no {kind:?} in common; it has: {theirs}", hop.shown()),
                )
            }
            russh::Error::Version => told(Kind::Io, format!("what answers at {} doesn't speak ssh", hop.shown())),
            error => told(Kind::Transient, format!("{} broke off the handshake: {error}", hop.shown())).turned_away(),
        })),
    }
}

fn preferred(known: &Known) -> Preferred {
    let mut keys = Preferred::DEFAULT.key.to_vec();
    // Of the sorts that are known, so that a server with several keys shows one that can be told.
    let plain = |key: &Algorithm| match key {
        Algorithm::Rsa { .. } => "ssh-rsa".to_owned(),
        other => other.to_string(),
    };
    keys.sort_by_key(|key| !known.sorts().any(|sort| sort == plain(key)));
    let certificates = if known.authorities().next().is_some() { keys.clone() } else { Vec::new() };
    Preferred {
        key: Cow::Owned(keys),
        host_key_certificates: Cow::Owned(certificates),
        cipher: Cow::Borrowed(CIPHERS),
        // Everything that goes over it is compressed and sealed.
        compression: Cow::Borrowed(&[compression::NONE]),
        ..Preferred::DEFAULT
    }
}

impl client::Handler for Client {
    type Error = russh::Error;

    async fn check_server_key(&mut self, key: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        let failure = match self.judge(key) {
            Ok(()) => return Ok(true),
            Err(failure) => failure,
        };
        *lock(&self.refused) = Some(failure);
        Ok(false)
    }

    async fn channel_open_confirmation(
        &mut self,
        _: ChannelId,
        _: u32,
        _: u32,
        session: &mut client::Session,
    ) -> Result<(), russh::Error> {
        self.line.leads_to(session.remote_sshid());
        Ok(())
    }

    async fn disconnected(&mut self, reason: client::DisconnectReason<russh::Error>) -> Result<(), russh::Error> {
        *lock(&self.ended) = Some(match &reason {
            client::DisconnectReason::ReceivedDisconnect(info) => Ok(info.message.escape_debug().to_string()),
            client::DisconnectReason::Error(error) => Err(error.to_string()),
        });
        Ok(())
    }
}

impl Client {
    fn judge(&self, shown: &PublicKeyOrCertificate) -> Result<(), Failure> {
        let key = shown.public_key();
        let sort = match key.algorithm() {
            Algorithm::Rsa { .. } => "ssh-rsa".to_owned(),
            other => other.to_string(),
        };
        let refuse = |cause: String| Failure::new(Kind::Refused, Action::Connect, cause);
        let bytes = key.to_bytes().map_err(|e| refuse(format!("its key can't be understood: {e}")))?;
        let print = key.fingerprint(HashAlg::Sha256);
        let host = self.hop.shown();
        // First of all: a certificate doesn't make up for it.
        if let Some(at) = self.known.revoked(&bytes) {
            return Err(refuse(format!(
                "the key of {host}, {sort} {print}, was revoked (in {at}): don't use that server"
            )));
        }
        if let Some(certificate) = shown.certificate() {
            let authority = PublicKey::from(certificate.signature_key().clone());
            let bytes =
                authority.to_bytes().map_err(|e| refuse(format!("its certificate can't be understood: {e}")))?;
            if let Some(at) = self.known.revoked(&bytes) {
                return Err(refuse(format!(
                    "the key of {host}, {sort} {print}, is certified by {}, which was revoked (in {at}): don't use that server",
                    authority.fingerprint(HashAlg::Sha256)
                )));
            }
            if self.is_certified(certificate) {
                return Ok(());
            }
        }
        match (self.known.verdict(&sort, &bytes), self.hop.strict()) {
            (Verdict::Known, _) => Ok(()),
            (Verdict::Changed(at), Strict::No) => {
                self.doubt(&format!("is not the one that is known (in {at})"), &format!("{sort} {print}"));
                Ok(())
            }
            (Verdict::Changed(at), _) => Err(refuse(format!(
                "the key of {host} is not the one that is known: somebody may be intercepting the connection. It now shows \
                 {sort} {print}; the known key is in {at}. If the server's owner confirms that it has changed, remove that \
                 line, or run: ssh-keygen -R '{}'",
                self.hop.known.name
            ))),
            // Who stands in between may show a key of another sort: that is no new server.
            (Verdict::Unknown, strict)
                if strict == Strict::Yes || (strict == Strict::AcceptNew && self.known.is_known()) =>
            {
                Err(refuse(format!(
                    "the key of {host} is not known here: {sort} {print}. Compare it with what the server's owner says, and \
                 then let ssh remember it: {}",
                    self.ssh_once()
                )))
            }
            (Verdict::Unknown, Strict::No) if self.known.is_known() => {
                self.doubt("is of another sort than those that are known", &format!("{sort} {print}"));
                Ok(())
            }
            (Verdict::Unknown, strict) => {
                if let Some(tell) = &self.tell {
                    tell(&format!("the key of {host} was not known, and is taken on trust: {sort} {print}"));
                }
                let file = self.hop.learn_to.as_ref().filter(|_| strict == Strict::AcceptNew);
                if let Some(file) = file {
                    learn(file, &self.hop.known.name, &sort, &bytes).map_err(|e| {
                        refuse(format!("the key of {host} can't be remembered in {}: {e}", file.display()))
                    })?;
                }
                Ok(())
            }
        }
    }

    /// It is taken, for the configuration says so, and may be anybody.
    fn doubt(&self, why: &str, key: &str) {
        let why = format!("its key {why}");
        if let Some(tell) = &self.tell {
            let host = self.hop.shown();
            tell(&format!("{host} may be somebody else: {why}, but {key}. It is given no password, only signatures"));
        }
        *lock(&self.doubt) = Some(why);
    }

    fn ssh_once(&self) -> String {
        let Hop { alias, port, user, .. } = &self.hop;
        let port = if *port == 22 { String::new() } else { format!("-p {port} ") };
        format!("ssh {port}{user}@{alias}")
    }

    /// Whether somebody who may has certified this key for this host.
    fn is_certified(&self, certificate: &Certificate) -> bool {
        let authorities: Vec<_> = self
            .known
            .authorities()
            .filter_map(|key| PublicKey::from_bytes(key).ok())
            .map(|key| key.fingerprint(HashAlg::Sha256))
            .collect();
        let names = certificate.valid_principals();
        let named = names.is_empty() || names.contains(&self.hop.certified_as);
        named && certificate.cert_type().is_host() && certificate.validate(&authorities).is_ok()
    }
}
