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
use russh::server::{Auth, ChannelOpenHandle, Config, Handler, Msg, Response, Session, run_stream};
use russh::{Channel, ChannelId};

const SERVER: &str = "/usr/lib/openssh/sftp-server";

/// One connection to it.
#[derive(Default)]
struct Asking {
    channel: Option<Channel<Msg>>,
}

impl Handler for Asking {
    type Error = russh::Error;

    async fn auth_keyboard_interactive<'a>(
        &'a mut self,
        _user: &str,
        _submethods: &str,
        response: Option<Response<'a>>,
    ) -> Result<Auth, Self::Error> {
        Ok(match response.map(|answers| answers.map(|answer| answer.to_vec()).collect::<Vec<_>>()) {
            Some(answers) if answers == [b"Paris"] => Auth::Accept,
            Some(_) => Auth::reject(),
            None => Auth::Partial {
                name: "".into(),
                instructions: "".into(),
                prompts: Cow::from(vec![(Cow::from("Capital of France?"), true)]),
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
fn start(key: PrivateKey) -> u16 {
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
                let config = config.clone();
                tokio::spawn(async move {
                    if let Ok(session) = run_stream(config, stream, Asking::default()).await {
                        let _ = session.await;
                    }
                });
            }
        });
    });
    port
}

/// Neither when the line breaks, nor for further connections.
#[test]
fn a_person_is_asked_once_a_run() {
    if !Path::new(SERVER).exists() {
        println!("a_person_is_asked_once_a_run: passed over, it needs {SERVER}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("host-key");
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status().unwrap();
    assert!(made.success());
    let relay = Relay::to(start(load_secret_key(&key, None).unwrap()), Line::default());
    let (known, config) = (dir.path().join("known"), dir.path().join("config"));
    let public = std::fs::read_to_string(key.with_extension("pub")).unwrap();
    std::fs::write(&known, format!("[127.0.0.1]:{} {public}", relay.port())).unwrap();
    let lines = format!(
        "Host asking\n HostName 127.0.0.1\n Port {}\n User somebody\n UserKnownHostsFile {}\n GlobalKnownHostsFile none\n \
         IdentityFile /none\n IdentitiesOnly yes\n",
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
            prompts.lock().unwrap().push(prompt.to_owned());
            Some("Paris".into())
        })),
        retries: Retries { first: millis(20), longest: millis(200), give_up: millis(20_000) },
        ..Surroundings::default()
    };
    let folder = dir.path().join("repository");
    std::fs::create_dir(&folder).unwrap();
    let location = Location::parse(&format!("sftp://asking{}", folder.display())).unwrap();
    let store = SftpStore::create(&location, &around).unwrap();
    store.put("a", b"1", Put::Create).unwrap();
    relay.cut();
    assert_eq!(store.get("a").unwrap(), b"1");
    // Enough for further connections.
    let mut upload = store.upload("large", 24 << 20).unwrap();
    (0..24).for_each(|_| upload.write(&vec![7; 1 << 20]).unwrap());
    upload.finish().unwrap();
    let asked = asked.lock().unwrap();
    assert!(asked.len() == 1 && asked[0].contains("Capital of France?"), "{asked:?}");
}
