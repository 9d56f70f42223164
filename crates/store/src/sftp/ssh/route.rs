//! The way to a server: the hosts on it, and what the user's configuration says of each.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::config::{Host, Query, Strict};
use super::{Failure, known};
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
    /// The name that its key is known by.
    pub known_as: String,
    pub known_hosts: Vec<PathBuf>,
    /// A file of keys that are no host's any more.
    pub revoked: Option<PathBuf>,
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

    /// What in the configuration isn't understood, for the end of a message; `reached`: of what matters once the host has been.
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

/// What a shell takes for something else, in a user's name. (A backslash stands between a domain and a name, a dollar behind a machine's.)
const NO_USERS: [char; 13] = ['\'', '`', '"', ';', '&', '<', '>', '|', '(', ')', '{', '}', '#'];

fn hop(address: &Address, around: &Surroundings, config: Host) -> Result<Hop, String> {
    let alias = address.host.clone();
    let user = address.user.clone().or(config.user.clone()).unwrap_or_else(|| around.user.clone());
    let port = address.port.or(config.port).unwrap_or(22);
    let host = config.host(&alias);
    let home = around.home.as_deref();
    let fill = |text: &str| fill(text, &alias, &host, port, &user, around);
    let paths = |given: &[String]| -> Vec<PathBuf> {
        given.iter().filter(|f| !f.eq_ignore_ascii_case("none")).filter_map(|f| path(&fill(f), home)).collect()
    };
    let in_home = |name: &str| home.map(|home| home.join(".ssh").join(name));
    let users = match &config.known_hosts {
        Some(files) => paths(files),
        None => ["known_hosts", "known_hosts2"].into_iter().filter_map(in_home).collect(),
    };
    let global = match &config.global_known_hosts {
        Some(files) => paths(files),
        None => SYSTEM_KNOWN_HOSTS.map(PathBuf::from).to_vec(),
    };
    let identities = match config.identity_files.is_empty() {
        false => paths(&config.identity_files),
        true => IDENTITIES.into_iter().filter_map(in_home).collect(),
    };
    let proxy_command = config.proxy_command.as_deref().filter(|c| !c.eq_ignore_ascii_case("none"));
    // The configuration is the user's own; an address may be anybody's.
    let is_odd = |user: &String| {
        let is_blank = |c: char| c.is_whitespace() || c.is_control();
        user.contains(NO_USERS) || user.contains(is_blank) || user.starts_with('-') || user.ends_with('\\')
    };
    if let Some(user) = address.user.as_ref().filter(|user| proxy_command.is_some() && is_odd(user)) {
        return Err(format!(
            "the user '{}' has a character that a shell would take for something else, and the ProxyCommand of '{alias}' is run by one",
            user.escape_debug()
        ));
    }
    Ok(Hop {
        known_as: match &config.host_key_alias {
            Some(alias) => alias.to_ascii_lowercase(),
            None => known::name(&host, port),
        },
        learn_to: users.first().cloned(),
        revoked: config.revoked_host_keys.as_deref().and_then(|file| paths(&[file.to_owned()]).pop()),
        known_hosts: [users, global].concat(),
        agent: match config.identity_agent.as_deref() {
            Some(agent) if agent.eq_ignore_ascii_case("none") => None,
            None | Some("SSH_AUTH_SOCK" | "$SSH_AUTH_SOCK") => around.agent.clone(),
            Some(socket) => path(&fill(socket), home),
        },
        identities,
        proxy_command: proxy_command.map(fill),
        alias: alias.clone(),
        user: user.clone(),
        host: host.clone(),
        port,
        config,
    })
}

/// The tokens of ssh_config(5) that say what is known here.
fn fill(text: &str, alias: &str, host: &str, port: u16, user: &str, around: &Surroundings) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('%') => out.push('%'),
            Some('h') => out.push_str(host),
            Some('n') => out.push_str(alias),
            Some('p') => out.push_str(&port.to_string()),
            Some('r') => out.push_str(user),
            Some('u') => out.push_str(&around.user),
            Some('d') => out.push_str(&around.home.as_deref().unwrap_or(Path::new("")).to_string_lossy()),
            Some(other) => out.extend(['%', other]),
            None => out.push('%'),
        }
    }
    out
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
            (plain.known_as.as_str(), plain.strict(), plain.patience()),
            ("h", Strict::Yes, Duration::from_secs(60))
        );
        let config = "Host h\n HostName %h.lan\n Port 2222\n User u\n IdentityFile ~/k-%r\n IdentityFile %d/%h\n \
                      UserKnownHostsFile /k\n GlobalKnownHostsFile none\n ServerAliveInterval 2\n ProxyCommand nc %h %p %%\n";
        let full = &route(config, "//h/x").unwrap()[0];
        assert_eq!((full.host.as_str(), full.port, full.user.as_str()), ("h.lan", 2222, "u"));
        assert_eq!(full.identities, [Path::new("/home/me/k-u"), Path::new("/home/me/h.lan")]);
        assert_eq!((full.known_as.as_str(), full.known_hosts.len()), ("[h.lan]:2222", 1));
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

    /// An address that somebody else has written runs nothing.
    #[test]
    fn no_address_gets_a_command_into_a_shell() {
        let config = "Host h\n ProxyCommand nc -l %r %h %p\n";
        for user in [
            "u;id",
            "`id`",
            "$(id)",
            "-oProxyCommand=id",
            "a|b",
            "x%0Aid",
            "x%5C",
            "x%20-oProxyCommand=id",
            "x%09y",
            "x%23",
        ] {
            let refused = route(config, &format!("//{user}@h/x")).unwrap_err().cause;
            assert!(refused.contains("a shell would take"), "{user}: {refused}");
            assert!(route("", &format!("//{user}@h/x")).is_ok(), "{user}: no shell is in the way");
        }
        let command = |user: &str| route(config, &format!("//{user}@h/x")).unwrap()[0].proxy_command.clone().unwrap();
        assert_eq!(command("DOMAIN%5Cme"), r"nc -l DOMAIN\me h 22");
        assert_eq!(command("machine$"), "nc -l machine$ h 22");
    }

    #[test]
    fn hosts_on_the_way() {
        let config = "Host far\n ProxyJump u@gate:2222,inner\nHost gate\n ProxyJump door\nHost inner\n Port 7\n";
        let shown: Vec<String> = route(config, "//far/x").unwrap().iter().map(Hop::shown).collect();
        assert_eq!(shown, ["door", "gate port 2222", "inner port 7", "far"]);
        assert_eq!(route("Host a\n ProxyJump none\n", "//a/x").unwrap().len(), 1);
        assert!(route("Host a\n ProxyJump b\nHost b\n ProxyJump a\n", "//a/x").unwrap_err().cause.contains("circle"));
    }
}
