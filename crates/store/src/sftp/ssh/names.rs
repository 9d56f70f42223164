//! Names in addresses that commands are told of.
//!
//! An address may come from elsewhere than the configuration does: from a script, a page, a ticket. What stands in it
//! must not become a command of its own where the user's `ProxyCommand` has `%h`, `%n` or `%r`, nor an option of
//! `--ssh-command`. ssh refuses such names for the same reason since 9.6 (CVE-2023-51385).

use crate::sftp::Address;

/// What a shell takes for more than itself.
const SHELL: &str = "'`\"$;&<>|(){}*?[]~#!";

/// A host's name has none of these, whoever is told of it: `/` would lead files of keys elsewhere.
pub(super) fn check_host(address: &Address) -> Result<(), String> {
    let odd = |c: char| SHELL.contains(c) || matches!(c, '\\' | '/') || c.is_whitespace() || c.is_control();
    match (address.host.strip_prefix('-').map(|_| '-'), address.host.chars().find(|c| odd(*c))) {
        (Some(c), _) | (None, Some(c)) => Err(format!(
            "'{}' is no host's name, for {} in it: a command (ProxyCommand, --ssh-command) could take it for more than a name",
            shown(&address.host),
            called(c)
        )),
        (None, None) => Ok(()),
    }
}

/// A user's name, which `command` will be told.
pub(super) fn check_user(address: &Address, command: &str) -> Result<(), String> {
    let Some(user) = &address.user else { return Ok(()) };
    let odd = |c: char| SHELL.contains(c) || c.is_whitespace() || c.is_control();
    // A last one would hide what comes behind.
    let last = user.ends_with('\\').then_some('\\');
    let first = user.strip_prefix('-').map(|_| '-');
    match first.or_else(|| user.chars().find(|c| odd(*c))).or(last) {
        Some(c) => Err(format!(
            "the user's name '{}' has {} in it, which {command} could take for more than a name: write it into the ssh \
             configuration (User) instead of the address, if it is right",
            shown(user),
            called(c)
        )),
        None => Ok(()),
    }
}

fn shown(name: &str) -> String {
    name.escape_debug().to_string()
}

fn called(c: char) -> String {
    match c {
        '-' => "the '-' at the beginning".into(),
        c => format!("the '{}'", c.escape_debug()),
    }
}
