//! The program killed over SFTP.

use super::Away;
use crate::aftermath;

#[test]
fn killed_while_bytes_pass() {
    let Some(away) = Away::new() else { return };
    aftermath::kills_while_bytes_pass(&away.home, &away.relay, 6000, |args| away.command("plain", args));
}
