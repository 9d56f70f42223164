//! A server that asks people, and takes nothing but answers.

use std::borrow::Cow;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drumlin_store::{Location, Put, Retries, SftpStore, Store, Surroundings};
use drumlin_testkit::{Line, Relay};
use russh::keys::{PrivateKey, load_secret_key};
use russh::server::{Auth, ChannelOpenHandle, Config, Handler, Msg, Response, Session, VerifiedPublicKey, run_stream};
use russh::{Channel, ChannelId, MethodKind, MethodSet};

const SERVER: &str = "/usr/lib/openssh/sftp-server";

/// Whether it takes an answer.
type Takes = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// One connection to it.
struct Asking {
    takes: Takes,
    /// Whether a key has to come first.
    wants_key: bool,
    channel: Option<Channel<Msg>>,
}

impl Handler for Asking {
    type Error = russh::Error;

    async fn auth_publickey(&mut self, _user: &str, _key: VerifiedPublicKey<'_>) -> Result<Auth, Self::Error> {
        let is_news = std::mem::take(&mut self.wants_key);
        let next = MethodKind::KeyboardInteractive;
        Ok(Auth::Reject { proceed_with_methods: Some(MethodSet::from(&[next][..])), partial_success: is_news })
    }

    async fn auth_keyboard_interactive<'a>(
        &'a mut self,
        _user: &str,
        _submethods: &str,
        response: Option<Response<'a>>,
    ) -> Result<Auth, Self::Error> {
        let answers =
            response.map(|answers| answers.map(|a| String::from_utf8_lossy(&a).into_owned()).collect::<Vec<_>>());
        Ok(match answers {
            _ if self.wants_key => Auth::Reject {
                proceed_with_methods: Some(MethodSet::from(&[MethodKind::PublicKey][..])),
                partial_success: false,
            },
            Some(answers) if answers.len() == 1 && (self.takes)(&answers[0]) => Auth::Accept,
            Some(_) => Auth::reject(),
            None => Auth::Partial {
                name: "It's".into(),
                instructions: "\u{1b}[2Ja\r\nquestion:".into(),
                prompts: Cow::from(vec![(Cow::from("Answer?"), true)]),
            },
        })
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.channel = Some(channel);
        reply.accept().await;
        Ok(())
    }

    async fn subsystem_request(
        &mut self,
        id: ChannelId,
        _name: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let (here, there) = std::os::unix::net::UnixStream::pair()?;
        let stdin = Stdio::from(std::os::fd::OwnedFd::from(there.try_clone()?));
        let stdout = Stdio::from(std::os::fd::OwnedFd::from(there));
        let mut child = Command::new(SERVER).stdin(stdin).stdout(stdout).spawn()?;
        std::thread::spawn(move || child.wait());
        here.set_nonblocking(true)?;
        let mut here = tokio::net::UnixStream::from_std(here)?;
        session.channel_success(id)?;
        if let Some(channel) = self.channel.take() {
            tokio::spawn(async move {
                let _ = tokio::io::copy_bidirectional(&mut channel.into_stream(), &mut here).await;
            });
        }
        Ok(())
    }
}

/// Its port.
fn start(key: PrivateKey, takes: Takes, wants_key: bool) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let moment = Duration::from_millis(10);
            let config = Config {
                keys: vec![key],
                auth_rejection_time: moment,
                auth_rejection_time_initial: Some(moment),
                ..Config::default()
            };
            let config = Arc::new(config);
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let (config, asking) = (config.clone(), Asking { takes: takes.clone(), wants_key, channel: None });
                tokio::spawn(async move {
                    if let Ok(session) = run_stream(config, stream, asking).await {
                        let _ = session.await;
                    }
                });
            }
        });
    });
    port
}

/// A store there, over a line, and what a person was asked, who answers with what `answer` gives.
struct Place {
    _dir: tempfile::TempDir,
    relay: Relay,
    store: SftpStore,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Place {
    fn new(test: &str, takes: Takes, answer: impl Fn(usize) -> String + Send + Sync + 'static) -> Option<Self> {
        Place::with(test, takes, false, "", answer).map(|place| place.unwrap_or_else(|(error, _)| panic!("{error}")))
    }

    /// `lines` of configuration count first. Where there is no way in: why, and what was asked.
    fn with(
        test: &str,
        takes: Takes,
        wants_key: bool,
        lines: &str,
        answer: impl Fn(usize) -> String + Send + Sync + 'static,
    ) -> Option<Result<Self, (drumlin_store::Error, Vec<String>)>> {
        if !Path::new(SERVER).exists() {
            println!("{test}: passed over, it needs {SERVER}");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("host-key");
        let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status().unwrap();
        assert!(made.success());
        let relay = Relay::to(start(load_secret_key(&key, None).unwrap(), takes, wants_key), Line::default());
        let (known, config) = (dir.path().join("known"), dir.path().join("config"));
        let public = std::fs::read_to_string(key.with_extension("pub")).unwrap();
        std::fs::write(&known, format!("[127.0.0.1]:{} {public}", relay.port())).unwrap();
        let lines = format!(
            "{lines}\nHost asking\n HostName 127.0.0.1\n Port {}\n User somebody\n UserKnownHostsFile {}\n \
             GlobalKnownHostsFile none\n IdentityFile /none\n IdentitiesOnly yes\n",
            relay.port(),
            known.display()
        );
        std::fs::write(&config, lines).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let prompts = asked.clone();
        let millis = Duration::from_millis;
        let around = Surroundings {
            user: "nobody".into(),
            ssh_config: Some(config),
            ask: Some(Arc::new(move |prompt: &str| {
                let mut prompts = prompts.lock().unwrap();
                prompts.push(prompt.to_owned());
                Some(answer(prompts.len()))
            })),
            retries: Retries { first: millis(20), longest: millis(200), give_up: millis(20_000) },
            ..Surroundings::default()
        };
        let folder = dir.path().join("repository");
        std::fs::create_dir(&folder).unwrap();
        let location = Location::parse(&format!("sftp://asking{}", folder.display())).unwrap();
        Some(match SftpStore::create(&location, &around) {
            Ok(store) => Ok(Place { _dir: dir, relay, store, asked }),
            Err(error) => Err((error, std::mem::take(&mut *asked.lock().unwrap()))),
        })
    }

    /// An object that is worth further connections.
    fn upload(&self, name: &str) {
        let mut upload = self.store.upload(name, 24 << 20).unwrap();
        (0..24).for_each(|_| upload.write(&vec![7; 1 << 20]).unwrap());
        upload.finish().unwrap();
    }
}

/// Neither when the line breaks, nor for further connections.
#[test]
fn a_person_is_asked_once_a_run() {
    let takes: Takes = Arc::new(|answer| answer == "Paris");
    let Some(place) = Place::new("a_person_is_asked_once_a_run", takes, |_| "Paris".into()) else { return };
    place.store.put("a", b"1", Put::Create).unwrap();
    place.relay.cut();
    assert_eq!(place.store.get("a").unwrap(), b"1");
    place.upload("large");
    let asked = place.asked.lock().unwrap();
    assert!(asked.len() == 1 && asked[0].ends_with(r"It's \u{1b}[2Ja question: Answer? "), "{asked:?}");
}

/// Whose codes count once is asked again where nothing goes on without, and not in order to be faster; and a code that
/// was refused for a further connection isn't sent for the next: servers shut out who does that.
#[test]
fn codes_that_count_once_are_asked_for_no_further_connection() {
    let given = Arc::new(Mutex::new(Vec::new()));
    let all = given.clone();
    let takes: Takes = Arc::new(move |code| {
        let mut all = all.lock().unwrap();
        let is_new = !all.iter().any(|before| before == code);
        all.push(code.to_owned());
        is_new
    });
    let test = "codes_that_count_once_are_asked_for_no_further_connection";
    let Some(place) = Place::new(test, takes, |n| format!("code {n}")) else { return };
    place.relay.set(Line::long(Duration::from_millis(30)));
    let sent = || given.lock().unwrap().iter().filter(|code| *code == "code 1").count();
    // The login, and the attempt to have one connection more, which goes on beside.
    for n in 0..20 {
        place.upload(&format!("large-{n}"));
        if sent() > 1 {
            break;
        }
    }
    place.upload("another");
    place.upload("third");
    assert_eq!(place.asked.lock().unwrap().len(), 1);
    assert_eq!(sent(), 2, "{:?}", given.lock().unwrap());
    for n in 2..4 {
        place.relay.cut();
        place.store.put(&format!("small-{n}"), b"1", Put::Create).unwrap();
        assert_eq!(place.asked.lock().unwrap().len(), n);
    }
    // Each code that was asked for after that was sent once.
    assert_eq!(given.lock().unwrap()[..], ["code 1", "code 1", "code 2", "code 3"]);
}

/// With `StrictHostKeyChecking no`, too, as with ssh: it may be anybody.
#[test]
fn a_server_with_another_key_than_the_known_one_is_told_no_secret() {
    // Its own key stands in another file, that isn't read: a stranger's does in this one.
    let (dir, test) = (tempfile::tempdir().unwrap(), "a_server_with_another_key_than_the_known_one_is_told_no_secret");
    let (stranger, known) = (dir.path().join("stranger"), dir.path().join("known"));
    let sorts =
        [("ed25519", "is not the one that is known"), ("ecdsa", "is of another sort than those that are known")];
    for (sort, part) in sorts {
        let _ = std::fs::remove_file(&stranger);
        let made = Command::new("ssh-keygen").args(["-q", "-t", sort, "-N", "", "-f"]).arg(&stranger).status().unwrap();
        assert!(made.success());
        std::fs::write(&known, "* ".to_owned() + &std::fs::read_to_string(stranger.with_extension("pub")).unwrap())
            .unwrap();
        let lines = format!("StrictHostKeyChecking no\nUserKnownHostsFile {}", known.display());
        let sent = Arc::new(Mutex::new(Vec::new()));
        let heard = sent.clone();
        let takes: Takes = Arc::new(move |answer| {
            heard.lock().unwrap().push(answer.to_owned());
            true
        });
        let Some(tried) = Place::with(test, takes, false, &lines, |_| "secret".into()) else { return };
        let (error, asked) = tried.err().expect("nothing but an answer opens it");
        assert!(asked.is_empty() && sent.lock().unwrap().is_empty(), "{asked:?} {sent:?}");
        assert!(error.to_string().contains(part), "{error}");
        assert!(error.to_string().contains("no password"), "{error}");
    }
}

/// A key and an answer (`AuthenticationMethods publickey,keyboard-interactive`): each is given once, and both again
/// after a break.
#[test]
fn a_server_that_takes_two_proofs_asks_once() {
    let takes: Takes = Arc::new(|answer| answer == "Paris");
    let (dir, test) = (tempfile::tempdir().unwrap(), "a_server_that_takes_two_proofs_asks_once");
    let key = dir.path().join("key");
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "locked", "-f"]).arg(&key).status();
    assert!(made.unwrap().success());
    let lines = format!("IdentityFile {}", key.display());
    let answer = |n| if n == 1 { "locked".into() } else { "Paris".into() };
    let Some(place) = Place::with(test, takes, true, &lines, answer) else { return };
    let place = place.unwrap_or_else(|(error, asked)| panic!("{error}: {asked:?}"));
    place.relay.cut();
    place.store.put("a", b"1", Put::Create).unwrap();
    let asked = place.asked.lock().unwrap();
    assert!(asked.len() == 2 && asked[0].contains("passphrase") && asked[1].contains("Answer?"), "{asked:?}");
}

#[test]
fn nobody_is_asked_in_batch_mode() {
    let takes: Takes = Arc::new(|_| true);
    let tried = Place::with("nobody_is_asked_in_batch_mode", takes, false, "BatchMode yes", |_| "Paris".into());
    let Some(tried) = tried else { return };
    let (error, asked) = tried.err().expect("nobody answers");
    assert!(asked.is_empty() && error.to_string().contains("BatchMode"), "{asked:?} {error}");
}
