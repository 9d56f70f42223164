//! The program killed over SFTP.

use super::Away;
use crate::aftermath;
use drumlin_testkit::Sshd;

#[test]
fn killed_while_bytes_pass() {
    let Some(away) = Away::new() else { return };
    aftermath::kills_while_bytes_pass(&away.home, &away.relay, 6000, |args| away.command("plain", args));
}

/// Half again as long as the other one: by `tests/remote sshd`.
#[test]
#[ignore = "takes a minute and a half"]
fn killed_while_bytes_pass_to_proftpd() {
    let Some(proftpd) = Sshd::start_proftpd() else { return };
    let away = Away::over(proftpd);
    aftermath::kills_while_bytes_pass(&away.home, &away.relay, 6000, |args| away.command("jail", args));
}
