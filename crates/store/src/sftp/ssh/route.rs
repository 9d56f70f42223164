//! The way to a server: the hosts on it, and what the user's configuration says of each.

use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_lc_rs::digest;

use super::config::tokens;
use super::config::{Host, Query, Strict};
use super::{Failure, known, names};
use crate::around::Surroundings;
use crate::sftp::Address;
use crate::{Action, Kind};

/// Hosts on the way, the server included.
const HOPS_MAX: usize = 8;
const ALIVE_INTERVAL: Duration = Duration::from_secs(15);
const ALIVE_COUNT: u32 = 3;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// A handshake takes some round trips, and a server may look long for a user.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// So many settings that aren't understood are named at the end of a message.
const NOTES_MAX: usize = 3;
/// Where ssh keeps the system's part.
const SYSTEM_CONFIG: &str = "/etc/ssh/ssh_config";
const SYSTEM_KNOWN_HOSTS: [&str; 2] = ["/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"];
/// Keys that are tried if nothing says which.
const IDENTITIES: [&str; 3] = ["id_ed25519", "id_ecdsa", "id_rsa"];

/// A host that is logged in to.
#[derive(Clone, Debug)]
pub(super) struct Hop {
    /// As the user calls it.
    pub alias: String,
    pub host: String,
    pub port: u16,
    pub user: String,
    /// Where its key is known from, and by which names.
    pub known: known::Where,
    /// The name that a certificate of it has to carry.
    pub certified_as: String,
    /// The first of them is where new ones are remembered.
    pub learn_to: Option<PathBuf>,
    pub identities: Vec<PathBuf>,
    /// The socket of the agent that is asked.
    pub agent: Option<PathBuf>,
    pub proxy_command: Option<String>,
    pub config: Host,
}

impl Hop {
    pub(super) fn strict(&self) -> Strict {
        self.config.strict.unwrap_or_default()
    }

    /// How often the line is asked whether it lives; `None`: never.
    pub(super) fn alive_interval(&self) -> Option<Duration> {
        Some(self.config.alive_interval.unwrap_or(ALIVE_INTERVAL)).filter(|interval| !interval.is_zero())
    }

    pub(super) fn alive_count(&self) -> u32 {
        self.config.alive_count.unwrap_or(ALIVE_COUNT)
    }

    /// A line that is silent for so long is dead.
    pub(super) fn patience(&self) -> Duration {
        let interval = self.alive_interval();
        interval.map_or(Duration::from_secs(3600), |interval| interval * (self.alive_count() + 1))
    }

    pub(super) fn connect_timeout(&self) -> Duration {
        Some(self.config.connect_timeout.unwrap_or(CONNECT_TIMEOUT)).filter(|t| !t.is_zero()).unwrap_or(CONNECT_TIMEOUT)
    }

    /// How long the server may take for an answer while it is logged in to.
    pub(super) fn answer_timeout(&self) -> Duration {
        self.config.connect_timeout.filter(|t| !t.is_zero()).unwrap_or(ANSWER_TIMEOUT)
    }

    /// `host`, or `host port 2222`, for messages.
    pub(super) fn shown(&self) -> String {
        if self.port == 22 { self.host.clone() } else { format!("{} port {}", self.host, self.port) }
    }

    /// What in the configuration isn't understood, for the end of a message; `reached`: of what matters once the host
    /// has been.
    pub(super) fn notes(&self, reached: bool) -> String {
        let notes: Vec<&str> =
            self.config.notes.iter().filter(|note| reached || note.reaches).map(|note| note.said.as_str()).collect();
        let more = match notes.len().saturating_sub(NOTES_MAX) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        match notes.is_empty() {
            true => String::new(),
            false => format!(
                "; not understood here: {}{more} (--ssh-command 'ssh' uses ssh itself)",
                notes[..notes.len().min(NOTES_MAX)].join(", ")
            ),
        }
    }
}

/// The hosts on the way to an address, and its own last.
pub(super) fn hops(address: &Address, around: &Surroundings) -> Result<Vec<Hop>, Failure> {
    let mut hops = Vec::new();
    add(&mut hops, address, around, 0)?;
    Ok(hops)
}

fn add(hops: &mut Vec<Hop>, address: &Address, around: &Surroundings, depth: usize) -> Result<(), Failure> {
    let fail = |cause: String| Failure::new(Kind::Refused, Action::Connect, cause);
    if depth >= HOPS_MAX {
        return Err(fail("the jump hosts on the way to it form a circle".into()));
    }
    let home = around.home.as_deref();
    let query = Query { host: &address.host, user: address.user.as_deref(), local_user: &around.user, home };
    let config = Host::read(&config_files(around), &query).map_err(fail)?;
    let hop = hop(address, around, config).map_err(fail)?;
    match hop.config.proxy_jump.clone().filter(|jump| !jump.eq_ignore_ascii_case("none")) {
        None => {}
        Some(jumps) => {
            for (at, jump) in jumps.split(',').enumerate() {
                let jump = jump.trim().strip_prefix("ssh://").unwrap_or(jump.trim());
                let jump = Address::parse(&format!("//{jump}/~")).map_err(|why| fail(format!("ProxyJump: {why}")))?;
                match at {
                    // The first is reached as it would be alone, the others through the one before.
                    0 => add(hops, &jump, around, depth + 1)?,
                    _ => {
                        let query = Query { host: &jump.host, user: jump.user.as_deref(), ..query };
                        let config = Host::read(&config_files(around), &query).map_err(fail)?;
                        hops.push(self::hop(&jump, around, config).map_err(fail)?);
                    }
                }
            }
        }
    }
    hops.push(hop);
    if hops.len() > HOPS_MAX {
        return Err(fail("there are too many jump hosts on the way to it".into()));
    }
    Ok(())
}

fn config_files(around: &Surroundings) -> Vec<PathBuf> {
    match (&around.ssh_config, &around.home) {
        (Some(file), _) => vec![file.clone()],
        (None, Some(home)) => vec![home.join(".ssh/config"), SYSTEM_CONFIG.into()],
        (None, None) => vec![SYSTEM_CONFIG.into()],
    }
}

fn hop(address: &Address, around: &Surroundings, config: Host) -> Result<Hop, String> {
    names::check_host(address)?;
    let proxy_command = config.proxy_command.as_ref().filter(|command| !command.eq_ignore_ascii_case("none"));
    if proxy_command.is_some() {
        names::check_user(address, "its ProxyCommand")?;
    }
    let alias = address.host.clone();
    let user = address.user.clone().or(config.user.clone()).unwrap_or_else(|| around.user.clone());
    let port = address.port.or(config.port).unwrap_or(22);
    let host = config.host(&alias);
    let home = around.home.as_deref();
    let jump = config.proxy_jump.as_deref().unwrap_or_default();
    let of = Of { alias: &alias, host: &host, port, user: &user, key: config.host_key_alias.as_deref(), jump, around };
    let fill = |option: &str, text: &str| of.fill(text).map_err(|why| format!("'{option} {text}': {why}"));
    let paths = |option: &str, given: &[String]| -> Result<Vec<PathBuf>, String> {
        let named = given.iter().filter(|file| !file.eq_ignore_ascii_case("none"));
        let filled = named.map(|file| fill(option, of_no_variable(option, file)?).map(|file| path(&file, home)));
        Ok(filled.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    };
    let in_home = |name: &str| home.map(|home| home.join(".ssh").join(name));
    let users = match &config.known_hosts {
        Some(files) => paths("UserKnownHostsFile", files)?,
        None => ["known_hosts", "known_hosts2"].into_iter().filter_map(in_home).collect(),
    };
    let global = match &config.global_known_hosts {
        Some(files) => paths("GlobalKnownHostsFile", files)?,
        None => SYSTEM_KNOWN_HOSTS.map(PathBuf::from).to_vec(),
    };
    let identities = match config.identity_files.is_empty() {
        false => paths("IdentityFile", &config.identity_files)?,
        true => IDENTITIES.into_iter().filter_map(in_home).collect(),
    };
    let named = config.host_key_alias.as_ref().unwrap_or(&host).to_ascii_lowercase();
    let learn_to = users.first().cloned();
    let known = known::Where {
        files: [users, global].concat(),
        revoked: match &config.revoked {
            Some(file) if file.eq_ignore_ascii_case("none") => None,
            Some(file) => match paths("RevokedHostKeys", std::slice::from_ref(file))?.pop() {
                None => {
                    return Err(format!("'RevokedHostKeys {file}' is below the home folder, and this user has none"));
                }
                found => found,
            },
            None => None,
        },
        name: if config.host_key_alias.is_some() { named.clone() } else { known::name(&host, port) },
        portless: (config.host_key_alias.is_none() && port != 22).then(|| named.clone()),
    };
    Ok(Hop {
        known,
        certified_as: named,
        learn_to,
        agent: match config.identity_agent.as_deref() {
            Some(agent) if agent.eq_ignore_ascii_case("none") => None,
            None | Some("SSH_AUTH_SOCK" | "$SSH_AUTH_SOCK") => around.agent.clone(),
            Some(socket) => path(&fill("IdentityAgent", of_no_variable("IdentityAgent", socket)?)?, home),
        },
        identities,
        proxy_command: proxy_command.map(|command| fill("ProxyCommand", command)).transpose()?,
        alias: alias.clone(),
        user: user.clone(),
        host: host.clone(),
        port,
        config,
    })
}

/// What tokens tell of.
struct Of<'a> {
    alias: &'a str,
    host: &'a str,
    port: u16,
    user: &'a str,
    /// `HostKeyAlias`.
    key: Option<&'a str>,
    jump: &'a str,
    around: &'a Surroundings,
}

impl Of<'_> {
    /// The tokens of ssh_config(5).
    fn fill(&self, text: &str) -> Result<String, String> {
        tokens::expand(text, |token| {
            Some(match token {
                'h' => self.host.to_owned(),
                'n' => self.alias.to_owned(),
                'p' => self.port.to_string(),
                'r' => self.user.to_owned(),
                'u' => self.around.user.clone(),
                'd' => self.around.home.as_deref().unwrap_or(Path::new("")).to_string_lossy().into_owned(),
                'i' => rustix::process::getuid().as_raw().to_string(),
                'k' => self.key.unwrap_or(self.alias).to_owned(),
                'j' => self.jump.to_owned(),
                'l' => this_machine(),
                'L' => this_machine().split('.').next().unwrap_or_default().to_owned(),
                'C' => {
                    let said = format!("{}{}{}{}{}", this_machine(), self.host, self.port, self.user, self.jump);
                    let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, said.as_bytes());
                    hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
                }
                _ => return None,
            })
        })
    }
}

fn this_machine() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Variables of the environment are not handed over to us: a path that needs one would lead to the wrong place.
fn of_no_variable<'a>(option: &str, text: &'a str) -> Result<&'a str, String> {
    match text.contains("${") {
        true => Err(format!(
            "'{option} {text}': variables (${{…}}) are not understood here; write the path out, or use ssh itself \
             (--ssh-command ssh)"
        )),
        false => Ok(text),
    }
}

/// A path with `~/` for the home folder; `None` if it needs one and there is none.
fn path(text: &str, home: Option<&Path>) -> Option<PathBuf> {
    match text.strip_prefix("~/") {
        Some(rest) => Some(home?.join(rest)),
        None => Some(PathBuf::from(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(config: &str, address: &str) -> Result<Vec<Hop>, Failure> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config");
        std::fs::write(&file, config).unwrap();
        let around = Surroundings {
            user: "me".into(),
            home: Some("/home/me".into()),
            agent: Some("/run/agent".into()),
            ssh_config: Some(file),
            ..Surroundings::default()
        };
        hops(&Address::parse(address).unwrap(), &around)
    }

    #[test]
    fn what_is_said_and_what_is_not() {
        let plain = &route("", "//h/x").unwrap()[0];
        assert_eq!((plain.host.as_str(), plain.port, plain.user.as_str()), ("h", 22, "me"));
        assert_eq!(plain.identities[0], Path::new("/home/me/.ssh/id_ed25519"));
        assert_eq!(plain.learn_to.as_deref(), Some(Path::new("/home/me/.ssh/known_hosts")));
        assert_eq!(
            (plain.known.name.as_str(), plain.strict(), plain.patience()),
            ("h", Strict::Yes, Duration::from_secs(60))
        );
        let config = "Host h\n HostName %h.lan\n Port 2222\n User u\n IdentityFile ~/k-%r\n IdentityFile %d/%h\n \
                      UserKnownHostsFile /k\n GlobalKnownHostsFile none\n ServerAliveInterval 2\n ProxyCommand nc %h %p %%\n";
        let full = &route(config, "//h/x").unwrap()[0];
        assert_eq!((full.host.as_str(), full.port, full.user.as_str()), ("h.lan", 2222, "u"));
        assert_eq!(full.identities, [Path::new("/home/me/k-u"), Path::new("/home/me/h.lan")]);
        assert_eq!((full.known.name.as_str(), full.known.files.len()), ("[h.lan]:2222", 1));
        assert_eq!(full.proxy_command.as_deref(), Some("nc h.lan 2222 %"));
        assert_eq!(full.patience(), Duration::from_secs(8));
        let agent = |config: &str| {
            let agent = route(config, "//h/x").unwrap()[0].agent.clone();
            agent.map(|agent| agent.display().to_string())
        };
        assert_eq!(agent("").as_deref(), Some("/run/agent"));
        assert_eq!(agent("IdentityAgent SSH_AUTH_SOCK").as_deref(), Some("/run/agent"));
        assert_eq!(agent("IdentityAgent ~/a/%r.sock").as_deref(), Some("/home/me/a/me.sock"));
        assert_eq!(agent("IdentityAgent none"), None);
        // The address says more.
        let said = &route(config, "//other@h:99/x").unwrap()[0];
        assert_eq!((said.port, said.user.as_str()), (99, "other"));
    }

    #[test]
    fn hosts_on_the_way() {
        let config = "Host far\n ProxyJump u@gate:2222,inner\nHost gate\n ProxyJump door\nHost inner\n Port 7\n";
        let shown: Vec<String> = route(config, "//far/x").unwrap().iter().map(Hop::shown).collect();
        assert_eq!(shown, ["door", "gate port 2222", "inner port 7", "far"]);
        assert_eq!(route("Host a\n ProxyJump none\n", "//a/x").unwrap().len(), 1);
        assert!(route("Host a\n ProxyJump b\nHost b\n ProxyJump a\n", "//a/x").unwrap_err().cause.contains("circle"));
    }

    #[test]
    fn names_that_a_command_would_not_take_as_they_stand() {
        let proxied = "Host *\n ProxyCommand nc %h %r\n";
        let users = ["a%3Bid", "a%24%28id%29", "a%24HOME", "-l", "a%20-b", "a%0Ab", "a%5C", "a%60b", "a%27b", "a*"];
        for user in users {
            let address = format!("//{user}@h/x");
            let why = route(proxied, &address).unwrap_err().cause;
            assert!(why.contains("user") && why.contains("ProxyCommand"), "{address}: {why}");
            // Where no command is run, the server alone reads it.
            assert_eq!(route("", &address).unwrap().len(), 1);
        }
        for host in ["h%3Bid", "%24%28id%29", "h%7Cid", "%2E%2E%2Fh", "[h;id]", "h%26"] {
            for config in [proxied, ""] {
                let why = route(config, &format!("//u@{host}/x")).unwrap_err().cause;
                assert!(why.contains("host"), "{host}: {why}");
            }
        }
        let jump = "Host h\n ProxyJump u;id@gate\nHost gate\n ProxyCommand nc %h %r\n";
        assert!(route(jump, "//h/x").unwrap_err().cause.contains("user"));
        assert!(route("Host h\n ProxyJump -oProxyCommand=id\n", "//h/x").is_err());
        for address in ["//first.last+x_y-1@h.example.com/x", "//DOMAIN%5Cme@h_1/x", "//a%40b@[fe80::1%eth0]/x"] {
            assert_eq!(route(proxied, address).unwrap().len(), 1, "{address}");
        }
    }

    #[test]
    fn tokens() {
        let file = |text: &str| {
            let config = format!("Host h\n HostName %h.lan\n HostKeyAlias k\n User u\n IdentityFile {text}\n");
            route(&config, "//h:7/x").map(|hops| hops[0].identities[0].display().to_string()).map_err(|e| e.cause)
        };
        assert_eq!(file("%d/%n-%h-%p-%r-%u-%k-%j-%%").unwrap(), "/home/me/h-h.lan-7-u-me-k--%");
        assert_eq!(file("%i").unwrap(), rustix::process::getuid().as_raw().to_string());
        assert!(file("%l").unwrap().starts_with(&file("%L").unwrap()) && !file("%L").unwrap().contains('.'));
        assert_eq!(file("%C").unwrap().len(), 40);
        for (text, part) in [("%q", "%q"), ("a%", "'%'"), ("${HOME}/x", "${")] {
            let why = file(text).unwrap_err();
            assert!(why.contains("IdentityFile") && why.contains(part), "{text}: {why}");
        }
        for option in ["UserKnownHostsFile", "IdentityAgent", "ProxyCommand", "RevokedHostKeys", "HostName"] {
            let why = route(&format!("{option} /%q"), "//h/x").unwrap_err().cause;
            assert!(why.contains(option) && why.contains("%q"), "{why}");
        }
    }
}
