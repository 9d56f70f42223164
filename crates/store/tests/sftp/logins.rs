//! Logging in: keys, agents, passphrases, and servers that are not those that are known.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use drumlin_store::{Kind, Location, Put, SftpStore, Store, Surroundings};

use crate::place::Place;

fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn works(place: &Place, around: &Surroundings) -> Result<(), drumlin_store::Error> {
    let location = place.location("plain", "/~/.");
    SftpStore::open(&location, around)?.list("", &mut |_| ())
}

/// A new key that the server lets in.
fn new_key(place: &Place, dir: &Path, sort: &str, bits: &str, passphrase: &str) -> std::path::PathBuf {
    let key = dir.join(format!("key-{sort}-{bits}"));
    run("ssh-keygen", &["-q", "-t", sort, "-b", bits, "-N", passphrase, "-f", key.to_str().unwrap()]);
    let_in(place, &key);
    key
}

/// Let the server know the public half that lies beside a key.
fn let_in(place: &Place, key: &Path) {
    let public = std::fs::read_to_string(key.with_extension("pub")).unwrap();
    let authorized = place.sshd.folder("etc").join("authorized_keys");
    let text = std::fs::read_to_string(&authorized).unwrap();
    std::fs::write(&authorized, text + &public).unwrap();
}

fn with_key(place: &Place, key: &Path) -> Surroundings {
    with_key_and(place, key, "")
}

fn with_key_and(place: &Place, key: &Path, lines: &str) -> Surroundings {
    let lines = format!("IdentityFile {}\n{lines}", key.display());
    // The first that is named is the first that is tried; the server's own key must not help.
    let config = place.sshd.config(place.relay.port(), &lines);
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace(place.sshd.key().to_str().unwrap(), "/none")).unwrap();
    Surroundings { ssh_config: Some(config), ..place.around() }
}

#[test]
fn keys_of_all_sorts() {
    let Some(place) = Place::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    for (sort, bits) in [("ed25519", "256"), ("ecdsa", "256"), ("ecdsa", "521"), ("rsa", "2048")] {
        let key = new_key(&place, dir.path(), sort, bits, "");
        works(&place, &with_key(&place, &key)).unwrap_or_else(|e| panic!("{sort} {bits}: {e}"));
    }
}

#[test]
fn a_key_whose_secret_begins_with_a_zero() {
    let Some(place) = Place::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, include_str!("../../src/sftp/ssh/short.key")).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(key.with_extension("pub"), run("ssh-keygen", &["-y", "-f", key.to_str().unwrap()])).unwrap();
    let_in(&place, &key);
    works(&place, &with_key(&place, &key)).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn a_locked_key_is_asked_for_once() {
    let Some(place) = Place::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let key = new_key(&place, dir.path(), "ed25519", "256", "secret");
    let mut around = with_key(&place, &key);
    let error = works(&place, &around).unwrap_err();
    assert_eq!(error.kind, Kind::Refused, "{error}");
    assert!(error.to_string().contains("locked by a passphrase"), "{error}");

    let asked = Arc::new(Mutex::new(Vec::new()));
    let prompts = asked.clone();
    around.ask = Some(Arc::new(move |prompt: &str| {
        prompts.lock().unwrap().push(prompt.to_owned());
        Some(if prompts.lock().unwrap().len() == 1 { "wrong".into() } else { "secret".into() })
    }));
    let store = SftpStore::open(&place.location("plain", "/~/."), &around).unwrap();
    assert_eq!(asked.lock().unwrap().len(), 2);
    assert!(asked.lock().unwrap()[0].contains(key.to_str().unwrap()));
    // Another connection asks nobody.
    place.relay.cut();
    store.list("", &mut |_| ()).unwrap();
    assert_eq!(asked.lock().unwrap().len(), 2);
}

struct Agent(String, std::path::PathBuf);

impl Agent {
    fn start(dir: &Path) -> Self {
        let socket = dir.join("agent");
        let text = run("ssh-agent", &["-a", socket.to_str().unwrap()]);
        let pid = text.split("SSH_AGENT_PID=").nth(1).unwrap().split(';').next().unwrap();
        Agent(pid.into(), socket)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(&self.0).status();
    }
}

#[test]
fn an_agents_keys() {
    let Some(place) = Place::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path());
    let add = |key: &Path| {
        run_with_agent(&agent, &["-q", key.to_str().unwrap()]);
    };
    let mut around = with_key(&place, Path::new("/none"));
    around.agent = Some(agent.1.clone());
    let identities_only = around.ssh_config.clone().unwrap();
    let error = works(&place, &around).unwrap_err();
    assert_eq!(error.kind, Kind::Refused, "{error}");
    for (sort, bits) in [("ed25519", "256"), ("rsa", "2048")] {
        let key = new_key(&place, dir.path(), sort, bits, "");
        add(&key);
        std::fs::remove_file(&key).unwrap();
        // IdentitiesOnly: those of the agent that are named, by their public halves.
        let named = with_key(&place, &key);
        works(&place, &Surroundings { agent: Some(agent.1.clone()), ..named })
            .unwrap_or_else(|e| panic!("{sort}: {e}"));
        // The public half itself may be named.
        let named = with_key(&place, &key.with_extension("pub"));
        works(&place, &Surroundings { agent: Some(agent.1.clone()), ..named })
            .unwrap_or_else(|e| panic!("{sort}.pub: {e}"));
    }
    let text = std::fs::read_to_string(&identities_only).unwrap();
    std::fs::write(&identities_only, text.replace("IdentityFile", "#").replace("IdentitiesOnly yes", "")).unwrap();
    works(&place, &around).unwrap();
    // What is named comes first, before a server has had enough of others.
    run_with_agent(&agent, &["-q", "-D"]);
    for n in 0..7 {
        let stranger = dir.path().join(format!("stranger-{n}"));
        run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", stranger.to_str().unwrap()]);
        add(&stranger);
    }
    let key = new_key(&place, dir.path(), "ecdsa", "256", "");
    add(&key);
    std::fs::remove_file(&key).unwrap();
    let config = with_key(&place, &key).ssh_config.unwrap();
    let text = std::fs::read_to_string(&config).unwrap().replace("IdentitiesOnly yes", "");
    std::fs::write(&config, text).unwrap();
    works(&place, &Surroundings { ssh_config: Some(config), ..around }).unwrap();
}

fn run_with_agent(agent: &Agent, args: &[&str]) {
    assert!(Command::new("ssh-add").args(args).env("SSH_AUTH_SOCK", &agent.1).status().unwrap().success());
}

#[test]
fn who_is_not_let_in_is_told_what_was_tried() {
    let Some(place) = Place::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("stranger");
    run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", key.to_str().unwrap()]);
    let error = works(&place, &with_key(&place, &key)).unwrap_err();
    let message = error.to_string();
    assert_eq!(error.kind, Kind::Refused, "{message}");
    for part in [
        "doesn't let 'plain' in",
        "tried without success",
        key.to_str().unwrap(),
        "it takes publickey",
        "cannot log in to",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let unknown = SftpStore::open(&place.location("stranger@plain", "/~/."), &place.around()).err().unwrap();
    assert!(unknown.to_string().contains("'stranger'"), "{unknown}");
    // What isn't understood may be why.
    let config = place.sshd.config(place.relay.port(), "Match exec true\n User x\nHost *\nCertificateFile /x");
    let around = Surroundings { ssh_config: Some(config), ..place.around() };
    let error = SftpStore::open(&place.location("stranger@plain", "/~/."), &around).err().unwrap();
    assert!(error.to_string().contains("not understood here: 'Match exec true'"), "{error}");
}

fn replace_known(place: &Place, change: impl FnOnce(&str) -> String) {
    let known = place.sshd.folder(&format!("known-{}", place.relay.port()));
    let text = std::fs::read_to_string(&known).unwrap();
    std::fs::write(&known, change(&text)).unwrap();
}

#[test]
fn a_server_that_is_not_known_is_refused() {
    let Some(place) = Place::new() else { return };
    let print = run("ssh-keygen", &["-lf", place.sshd.folder("etc/host_key.pub").to_str().unwrap()]);
    let print = print.split(' ').nth(1).unwrap().to_owned();
    let known = place.sshd.folder(&format!("known-{}", place.relay.port()));
    let line = std::fs::read_to_string(&known).unwrap();
    let port = place.relay.port();

    replace_known(&place, |_| String::new());
    let error = works(&place, &place.around()).unwrap_err();
    let message = error.to_string();
    assert_eq!(error.kind, Kind::Refused, "{message}");
    for part in ["is not known here", &print, &format!("ssh -p {port} plain@plain")] {
        assert!(message.contains(part), "{part}: {message}");
    }

    // Hashed by ssh itself.
    std::fs::write(&known, &line).unwrap();
    run("ssh-keygen", &["-q", "-H", "-f", known.to_str().unwrap()]);
    assert!(std::fs::read_to_string(&known).unwrap().starts_with("|1|"));
    works(&place, &place.around()).unwrap();

    let other = run("ssh-keygen", &["-yf", place.sshd.key().to_str().unwrap()]);
    let other = other.split(' ').nth(1).unwrap().to_owned();
    replace_known(&place, |_| format!("[127.0.0.1]:{port} ssh-ed25519 {other}\n"));
    let message = works(&place, &place.around()).unwrap_err().to_string();
    for part in ["not the one that is known", &print, "known-", ":1.", "ssh-keygen -R"] {
        assert!(message.contains(part), "{part}: {message}");
    }

    replace_known(&place, |_| format!("{line}@revoked * {}", line.split_once(' ').unwrap().1));
    let message = works(&place, &place.around()).unwrap_err().to_string();
    assert!(message.contains("was revoked"), "{message}");
    assert!(std::fs::read_dir(place.sshd.folder("plain")).unwrap().count() == 0, "nothing was done there");
}

#[test]
fn a_new_server_is_remembered_if_the_configuration_says_so() {
    let Some(place) = Place::with("StrictHostKeyChecking accept-new") else { return };
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = told.clone();
    let mut around = place.around();
    around.tell = Some(Arc::new(move |words: &str| heard.lock().unwrap().push(words.to_owned())));
    replace_known(&place, |_| String::new());
    works(&place, &around).unwrap();
    assert!(told.lock().unwrap()[0].contains("taken on trust"), "{told:?}");
    works(&place, &around).unwrap();
    assert_eq!(told.lock().unwrap().len(), 1, "the second time it is known");
    // ssh reads what was written.
    let config = around.ssh_config.clone().unwrap();
    let hello =
        run("ssh", &["-F", config.to_str().unwrap(), "-o", "StrictHostKeyChecking=yes", "plain", "echo", "hello"]);
    assert_eq!(hello, "hello\n");
}

#[test]
fn a_certified_server_is_known() {
    let Some(place) = Place::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let authority = dir.path().join("ca");
    run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", authority.to_str().unwrap()]);
    // A server of its own, with a certificate.
    let host_key = place.sshd.folder("etc/host_key.pub");
    let sign =
        ["-q", "-s", authority.to_str().unwrap(), "-h", "-I", "x", "-n", "127.0.0.1", host_key.to_str().unwrap()];
    run("ssh-keygen", &sign);
    let config = place.sshd.folder("etc/sshd_config");
    let text = std::fs::read_to_string(&config).unwrap();
    let certificate = format!("HostCertificate {}\n", place.sshd.folder("etc/host_key-cert.pub").display());
    std::fs::write(&config, certificate + &text).unwrap();
    place.sshd.reload();
    let public = std::fs::read_to_string(authority.with_extension("pub")).unwrap();
    let key = public.split(' ').take(2).collect::<Vec<_>>().join(" ");
    replace_known(&place, |_| format!("@cert-authority [127.0.0.1]:* {key}\n"));
    works(&place, &place.around()).unwrap();
    // Of another authority.
    let other = run("ssh-keygen", &["-yf", place.sshd.key().to_str().unwrap()]);
    replace_known(&place, |_| format!("@cert-authority [127.0.0.1]:* {other}"));
    let message = works(&place, &place.around()).unwrap_err().to_string();
    assert!(message.contains("is not known here"), "{message}");
    // Revoked is a key that somebody has certified, too, and so is what a revoked authority has certified.
    let host = std::fs::read_to_string(&host_key).unwrap();
    for revoked in [host.as_str(), &public] {
        replace_known(&place, |_| format!("@cert-authority [127.0.0.1]:* {key}\n@revoked * {revoked}"));
        let message = works(&place, &place.around()).unwrap_err().to_string();
        assert!(message.contains("was revoked (in "), "{message}");
    }
    // By a list of its own, too, which has to be one that is understood.
    let (list, known) = (dir.path().join("list"), format!("@cert-authority [127.0.0.1]:*,alias {key}\n"));
    for (revoked, part) in [(host.as_str(), "list:2"), (&public, "list:2"), ("SSHKRL", "binary list")] {
        let text = if revoked == "SSHKRL" { "SSHKRL\n\0\0\0".to_owned() } else { format!("# a list\n{revoked}") };
        std::fs::write(&list, text).unwrap();
        let config = place.sshd.config(place.relay.port(), &format!("RevokedHostKeys {}", list.display()));
        replace_known(&place, |_| known.clone());
        let message =
            works(&place, &Surroundings { ssh_config: Some(config), ..place.around() }).unwrap_err().to_string();
        assert!(message.contains(part), "{part}: {message}");
    }
    // A certificate is for the name that the key is known by, and for no other.
    let config = place.sshd.config(place.relay.port(), "HostKeyAlias alias");
    replace_known(&place, |_| known.clone());
    let around = Surroundings { ssh_config: Some(config), ..place.around() };
    let message = works(&place, &around).unwrap_err().to_string();
    assert!(message.contains("is not known here"), "{message}");
    let sign = ["-q", "-s", authority.to_str().unwrap(), "-h", "-I", "x", "-n", "alias", host_key.to_str().unwrap()];
    run("ssh-keygen", &sign);
    place.sshd.reload();
    works(&place, &around).unwrap();
}

/// As with ssh: a line without a port counts where none says something of that port.
#[test]
fn a_server_at_another_port_is_known_by_a_line_without_one() {
    let Some(place) = Place::new() else { return };
    let known = |text: &str| text.replace(&format!("[127.0.0.1]:{}", place.relay.port()), "127.0.0.1");
    replace_known(&place, known);
    works(&place, &place.around()).unwrap();
    let other = run("ssh-keygen", &["-yf", place.sshd.key().to_str().unwrap()]);
    replace_known(&place, |text| format!("{text}[127.0.0.1]:{} {other}", place.relay.port()));
    let message = works(&place, &place.around()).unwrap_err().to_string();
    assert!(message.contains("not the one that is known"), "{message}");
    replace_known(&place, |_| format!("127.0.0.1 {other}"));
    let message = works(&place, &place.around()).unwrap_err().to_string();
    assert!(message.contains("is not known here"), "{message}");
}

/// Whoever it is that shows another key than the known one, he gets no secret, and may look at signatures only.
#[test]
fn a_changed_server_that_is_taken_all_the_same_gets_keys_only() {
    let Some(place) = Place::with("StrictHostKeyChecking no") else { return };
    let other = run("ssh-keygen", &["-yf", place.sshd.key().to_str().unwrap()]);
    replace_known(&place, |_| format!("[127.0.0.1]:{} {other}", place.relay.port()));
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = told.clone();
    let around = Surroundings {
        tell: Some(Arc::new(move |words: &str| heard.lock().unwrap().push(words.to_owned()))),
        ..place.around()
    };
    works(&place, &around).unwrap();
    assert!(told.lock().unwrap()[0].contains("is not the one that is known"), "{told:?}");
}

#[test]
fn through_a_program_and_through_another_host() {
    let Some(place) = Place::new() else { return };
    let port = place.sshd.port();
    // bash opens the connection: no other program is needed.
    let relay = format!("bash -c \"exec 3<>/dev/tcp/127.0.0.1/{port}; cat <&3 & cat >&3\"");
    let proxied = Surroundings {
        ssh_config: Some(place.sshd.config(place.relay.port(), &format!("ProxyCommand {}", relay.replace('"', "'")))),
        ..place.around()
    };
    let before = place.relay.connections();
    works(&place, &proxied).unwrap();
    assert_eq!(place.relay.connections(), before, "it didn't go through the relay");

    let config = place.sshd.folder("etc/sshd_config");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("AllowTcpForwarding no", "AllowTcpForwarding yes")).unwrap();
    place.sshd.reload();
    let jump = Surroundings {
        ssh_config: Some(
            place.sshd.config(place.relay.port(), "Host plain\n ProxyJump jail\nHost jail\n User plain\nHost *"),
        ),
        ..place.around()
    };
    let before = place.relay.connections();
    let store = SftpStore::create(&place.location("plain", "/~/jumped"), &jump).unwrap();
    assert_eq!(place.relay.connections(), before + 2, "one from here, one from there");
    store.put("a", b"1", Put::Create).unwrap();
    place.relay.cut();
    assert_eq!(store.get("a").unwrap(), b"1");
}

/// Who isn't let in leaves nothing behind, not even a program that has ended and that nobody has asked about.
#[test]
fn the_program_of_a_login_that_is_refused_is_gone() {
    let Some(place) = Place::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (key, number) = (dir.path().join("stranger"), dir.path().join("number"));
    run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", key.to_str().unwrap()]);
    let open = format!("exec 3<>/dev/tcp/127.0.0.1/{}", place.sshd.port());
    let relay = format!("bash -c 'echo $$ > {}; {open}; cat <&3 & cat >&3; sleep 100'", number.display());
    let proxied = with_key_and(&place, &key, &format!("ProxyCommand {relay}"));
    let error = works(&place, &proxied).unwrap_err();
    assert_eq!(error.kind, Kind::Refused, "{error}");
    let number = std::fs::read_to_string(number).unwrap();
    let program = Path::new("/proc").join(number.trim());
    let start = Instant::now();
    while program.exists() {
        assert!(start.elapsed() < Duration::from_secs(10), "{} is still there", program.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What a connection is sealed with, by the server's own word.
#[test]
fn the_fast_cipher_is_taken_where_the_server_has_it() {
    let Some(place) = Place::new() else { return };
    let config = place.sshd.folder("etc/sshd_config");
    let text = std::fs::read_to_string(&config).unwrap().replace("LogLevel VERBOSE", "LogLevel DEBUG1");
    let every_sort = "chacha20-poly1305@openssh.com,aes128-ctr,aes128-gcm@openssh.com,aes256-gcm@openssh.com";
    for (number, (offered, taken)) in [
        (every_sort, "aes256-gcm@openssh.com"),
        ("chacha20-poly1305@openssh.com,aes128-gcm@openssh.com", "aes128-gcm@openssh.com"),
        ("aes128-ctr,chacha20-poly1305@openssh.com", "chacha20-poly1305@openssh.com"),
        ("aes128-ctr", "aes128-ctr"),
    ]
    .into_iter()
    .enumerate()
    {
        std::fs::write(&config, format!("Ciphers {offered}\n{text}")).unwrap();
        place.sshd.reload();
        let before = place.sshd.log().len();
        place.create("plain", &format!("/~/sealed-{number}")).put("a", b"1", Put::Create).unwrap();
        let log = place.sshd.log().split_off(before);
        for way in ["client->server", "server->client"] {
            assert!(log.contains(&format!("kex: {way} cipher: {taken} ")), "{offered}: {log}");
        }
    }
}

/// The host on the way answers, and the one behind it doesn't.
#[test]
fn a_server_that_falls_silent_behind_another_is_given_up() {
    let Some(place) = Place::new() else { return };
    let file = place.sshd.folder("etc/sshd_config");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("AllowTcpForwarding no", "AllowTcpForwarding yes")).unwrap();
    place.sshd.reload();
    let lines = format!(
        "ServerAliveInterval 1\nServerAliveCountMax 1\nHost plain\n ProxyJump jail\nHost jail\n User plain\n Port {}\n UserKnownHostsFile {}\nHost *",
        place.sshd.port(),
        place.sshd.known_hosts().display()
    );
    let around = Surroundings { ssh_config: Some(place.sshd.config(place.relay.port(), &lines)), ..place.around() };
    let store = SftpStore::create(&place.location("plain", "/~/behind"), &around).unwrap();
    store.put("a", b"1", Put::Create).unwrap();
    let before = place.relay.connections();
    place.relay.stall(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_secs(6));
            let again = place.relay.connections();
            place.relay.cut();
            place.relay.stall(false);
            assert!(again > before, "nobody tried another connection");
        });
        assert_eq!(store.get("a").unwrap(), b"1");
    });
}

#[test]
fn what_is_no_server() {
    let around = Surroundings { ssh_config: Some("/none".into()), ..Surroundings::default() };
    let open = |location: &str| SftpStore::open(&Location::parse(location).unwrap(), &around).err().unwrap();
    // A port that nobody listens on.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = open(&format!("sftp://127.0.0.1:{free}/x"));
    assert_eq!(error.kind, Kind::Transient, "{error}");
    assert!(error.to_string().contains("Connection refused"), "{error}");
    let error = open("sftp://no-such-host.invalid/x");
    assert!(error.to_string().contains("no-such-host.invalid can't be reached"), "{error}");
    // Something that doesn't speak ssh.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let error = open(&format!("sftp://127.0.0.1:{port}/x"));
    assert!(error.to_string().contains("127.0.0.1"), "{error}");
    // Programs that are none, fail, or talk.
    for (program, part) in [
        ("no-such-program-at-all", "not found"),
        ("echo oh no >&2; exit 3", "exit status 3): oh no"),
        ("echo Welcome; sleep 1", "login script"),
        ("true", "has ended (exit status 0)"),
    ] {
        let error = open(&format!("stdio:{program}"));
        assert_eq!(error.kind, Kind::Io, "{error}");
        assert!(error.to_string().contains(part), "{program}: {error}");
    }
}

/// A server with too many logins at once lets go of some of them; whoever is turned away comes again.
#[test]
fn who_is_turned_away_comes_again() {
    let Some(place) = Place::new() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = place.sshd.config(listener.local_addr().unwrap().port(), "");
    let (server, came) = (place.sshd.port(), Arc::new(AtomicUsize::new(0)));
    let count = came.clone();
    // Two are let go of at once, one in the midst of its greeting.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            match count.fetch_add(1, Ordering::Relaxed) {
                0 => continue,
                1 => stream.write_all(b"SSH-2.0-Open").unwrap(),
                2 => stream.write_all(b"Exceeded MaxStartups\r\n").unwrap(),
                _ => {
                    let onwards = TcpStream::connect(("127.0.0.1", server)).unwrap();
                    let (mut from, mut to) = (stream.try_clone().unwrap(), onwards.try_clone().unwrap());
                    std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                    let (mut from, mut to) = (onwards, stream);
                    std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                }
            }
        }
    });
    let around = Surroundings { ssh_config: Some(config), ..place.around() };
    SftpStore::create(&place.location("plain", "/~/turned"), &around).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(came.load(Ordering::Relaxed), 4);
}

/// At any moment of it, a login that hears nothing more ends, and says so.
#[test]
fn a_login_that_stalls_is_given_up() {
    let Some(place) = Place::with("ConnectTimeout 1") else { return };
    place.relay.set(drumlin_testkit::Line::long(std::time::Duration::from_millis(40)));
    let login = || SftpStore::open(&place.location("plain", "/~/r"), &place.around()).err();
    // On a busy machine one that nobody holds up may take a second, too.
    let whole = (0..8).find_map(|_| {
        let before = place.relay.turns();
        login().is_none().then(|| place.relay.turns() - before)
    });
    let turns = whole.expect("one of eight logins comes to its end");
    assert!(turns > 5, "{turns}");
    for at in 0..turns {
        let before = place.relay.turns();
        let start = std::time::Instant::now();
        let error = std::thread::scope(|scope| {
            let login = scope.spawn(login);
            while place.relay.turns() - before < at && !login.is_finished() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            place.relay.stall(true);
            let error = login.join().unwrap();
            place.relay.stall(false);
            error
        });
        place.relay.cut();
        assert!(start.elapsed() < std::time::Duration::from_secs(10), "{at}: {:?}", start.elapsed());
        if let Some(error) = error {
            assert_eq!(error.kind, Kind::Transient, "{at}: {error}");
        }
    }
}

/// Somebody in between who has no key of the sort that is known.
#[test]
fn a_known_server_is_not_new_for_showing_another_sort_of_key() {
    let Some(place) = Place::new() else { return };
    let other = place.sshd.folder("other");
    run("ssh-keygen", &["-q", "-t", "ecdsa", "-N", "", "-f", other.to_str().unwrap()]);
    let public = std::fs::read_to_string(other.with_extension("pub")).unwrap();
    let key = public.split(' ').take(2).collect::<Vec<_>>().join(" ");
    replace_known(&place, |_| format!("[127.0.0.1]:{} {key}\n", place.relay.port()));
    let config = place.sshd.config(place.relay.port(), "StrictHostKeyChecking accept-new");
    replace_known(&place, |_| format!("[127.0.0.1]:{} {key}\n", place.relay.port()));
    let around = Surroundings { ssh_config: Some(config), ..place.around() };
    let message = works(&place, &around).unwrap_err().to_string();
    assert!(message.contains("is not known here"), "{message}");
}
