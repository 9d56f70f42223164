//! Metadata written to a held entry, in the one order that keeps each step from undoing another:
//!
//! 1. owner and group (changing them clears setuid, setgid and capabilities);
//! 2. extended attributes except ACLs (`user.` ones need write permission, which the mode may take away);
//! 3. mode;
//! 4. POSIX ACLs (a later chmod would only change their mask);
//! 5. times (all of the above change none, but a directory's contents do: the caller finishes directories last);
//! 6. inode flags (immutable forbids all of the above, and renaming: a step of its own for the caller).
//!
//! Calls whose effect is already there are left out.

use std::cell::Cell;

use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use super::error::{Problem, Problems, What};
use super::handle::Handle;
use super::target::Shared;
use crate::meta::{Extras, FLAGS_KEPT, Kind, Stat, Time};

const SETUID: u16 = 0o4000;
const SETGID: u16 = 0o2000;
const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

/// Append-only and immutable: while set, nothing else can be changed.
const FLAGS_LOCKING: u32 = 0x20 | 0x10;
/// Flags with an effect only on a file that is still empty: compressed, incompressible, no copy on write,
/// case-insensitive.
const FLAGS_EARLY: u32 = 0x4 | 0x400 | 0x0080_0000 | 0x4000_0000;

/// The metadata that an entry shall have.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Permission bits with setuid, setgid and sticky. Without meaning for symlinks.
    pub mode: u16,
    /// Owner and group, already mapped to this machine (see [`super::Owners`]). `None` leaves what creating gave;
    /// setuid and setgid of files are then left out.
    pub owner: Option<(u32, u32)>,
    /// Last change of the contents. The time of the last access is left alone.
    pub mtime: Time,
    /// Extended attributes, inode flags; a symlink's target.
    pub extras: &'a Extras,
}

impl<'a> Wanted<'a> {
    /// What `stat` and `extras` say, owners by number.
    pub fn of(stat: &Stat, extras: &'a Extras) -> Self {
        Wanted { mode: stat.mode, owner: Some((stat.uid, stat.gid)), mtime: stat.mtime, extras }
    }
}

/// What an entry has before anything is applied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub kind: Kind,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    /// Where the contents stay as they are: the time that stands.
    pub mtime: Option<Time>,
    pub attributes: Attributes,
}

/// What is known of an entry's attributes and flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attributes {
    /// None that would have to go: a new file where nothing is inherited.
    None,
    /// A new file that inherited an ACL or flags.
    Inherited,
    /// An entry with a past: anything.
    Any,
}

impl Now {
    pub fn of(stat: &Stat, attributes: Attributes) -> Self {
        Now { kind: stat.kind, mode: stat.mode, uid: stat.uid, gid: stat.gid, mtime: None, attributes }
    }
}

/// Whether steps 1 to 6 would change anything about an entry with a past, as far as this user may. What can't be looked
/// at counts as other than wanted.
pub(super) fn differs(h: Handle<'_>, now: &Now, wanted: &Wanted<'_>, shared: &Shared) -> bool {
    let gets = |has: u32, gets: u32, may: bool| (has == gets || may, has != gets && may);
    let ((has_uid, new_uid), (has_gid, new_gid)) =
        wanted.owner.map_or(((false, false), (false, false)), |(uid, gid)| {
            let may_chown = shared.may_chown();
            (gets(now.uid, uid, may_chown), gets(now.gid, gid, may_chown || shared.may_chgrp(gid)))
        });
    let kept = if now.kind == Kind::Dir { 0o7777 } else { mode_kept(has_uid, has_gid) };
    let names = h.xattr_names().unwrap_or_default();
    let xattrs = Xattrs { h, wanted, had: &names, any: true, changed_mode: Cell::new(false) };
    let flags_differ = |has: Option<u32>| (has.unwrap_or_default() ^ wanted.extras.flags) & FLAGS_KEPT != 0;
    new_uid
        || new_gid
        || now.mtime != Some(wanted.mtime)
        || now.kind != Kind::Symlink && now.mode != wanted.mode & kept
        || xattrs.differ()
        || matches!(now.kind, Kind::File | Kind::Dir) && h.flags().is_ok_and(flags_differ)
}

/// The bits of a mode that a file is given whose owner and group are, or aren't, the wanted ones: a setuid program that
/// belongs to whoever restored it would lend that user's rights instead.
fn mode_kept(has_uid: bool, has_gid: bool) -> u16 {
    0o7777 & !(if has_uid { 0 } else { SETUID }) & !(if has_gid { 0 } else { SETGID })
}

/// Steps 1 to 5.
pub(super) fn apply(h: Handle<'_>, now: &Now, wanted: &Wanted<'_>, shared: &Shared, problems: &mut Problems) {
    // What is right stays as it is: to lift the flags and set them again would be a change to the next backup.
    if now.attributes == Attributes::Any && locks(h, now.kind).is_some() && differs(h, now, wanted, shared) {
        unlock(h, now.kind);
    }
    let given = give(h, now, wanted, shared, problems);
    let names = match now.attributes {
        Attributes::None => Vec::new(),
        Attributes::Inherited | Attributes::Any => h.xattr_names().unwrap_or_default(),
    };
    let any = now.attributes == Attributes::Any;
    let xattrs = Xattrs { h, wanted, had: &names, any, changed_mode: Cell::new(false) };
    if !(wanted.extras.xattrs.is_empty() && names.is_empty()) {
        xattrs.apply(false, problems);
    }
    if now.kind != Kind::Symlink {
        set_mode(h, now, wanted, given, xattrs.changed_mode.get(), problems);
    }
    if !(wanted.extras.xattrs.is_empty() && names.is_empty()) {
        xattrs.apply(true, problems);
    }
    // Setting what is set already would change the ctime, and with it what the next backup takes for changed.
    if now.mtime != Some(wanted.mtime)
        && let Err(e) = set_times(h, wanted.mtime)
    {
        problems.push(Problem::new(What::Times, e));
    }
}

/// Step 6: makes the flags that a restore knows equal to the wanted ones, and leaves the others.
pub(super) fn apply_flags(h: Handle<'_>, now: &Now, wanted: &Wanted<'_>, problems: &mut Problems) {
    let want = wanted.extras.flags & FLAGS_KEPT;
    if !matches!(now.kind, Kind::File | Kind::Dir) || (want == 0 && now.attributes == Attributes::None) {
        return;
    }
    match h.flags() {
        Ok(Some(has)) => set_flags(h, has, want, problems),
        // Nothing can be set there, and nothing needs to be cleared.
        Ok(None) | Err(_) if want == 0 => {}
        Ok(None) => problems.push(Problem::new(What::Flags(want), Errno::NOTSUP)),
        Err(e) => problems.push(Problem::new(What::Flags(want), e)),
    }
}

/// The flags that only take effect on an empty file; what fails here fails again, and is reported, in step 6.
pub(super) fn apply_early_flags(h: Handle<'_>, flags: u32) {
    let want = flags & FLAGS_EARLY;
    if want != 0
        && let Ok(Some(has)) = h.flags()
        && has & want != want
    {
        let _ = h.set_flags(has | want);
    }
}

/// Whether some of these flags only take effect on an empty file or directory.
pub(super) fn has_early_flags(flags: u32) -> bool {
    flags & FLAGS_EARLY != 0
}

/// Whether flags of a new entry differ from none.
pub(super) fn has_kept_flags(h: Handle<'_>) -> bool {
    matches!(h.flags(), Ok(Some(flags)) if flags & FLAGS_KEPT != 0)
}

/// Whether there is an ACL among these names.
pub(super) fn has_acl(names: &[u8]) -> bool {
    names.split(|&b| b == 0).any(is_acl)
}

/// Lifts immutable and append-only from an entry that is to be changed. A refusal shows in what follows.
pub(super) fn unlock(h: Handle<'_>, kind: Kind) {
    if let Some(has) = locks(h, kind) {
        let _ = h.set_flags(has & !FLAGS_LOCKING);
    }
}

/// The flags of an entry, if some of them lock it.
fn locks(h: Handle<'_>, kind: Kind) -> Option<u32> {
    if !matches!(kind, Kind::File | Kind::Dir) {
        return None;
    }
    h.flags().ok().flatten().filter(|has| has & FLAGS_LOCKING != 0)
}

/// Does something while they are lifted from a file; `None` if it has neither, or they can't be lifted.
pub(super) fn while_unlocked<T>(h: Handle<'_>, work: impl FnOnce() -> T) -> Option<T> {
    let has = h.flags().ok().flatten().filter(|has| has & FLAGS_LOCKING != 0)?;
    h.set_flags(has & !FLAGS_LOCKING).ok()?;
    let done = work();
    // What was possible a moment ago.
    let _ = h.set_flags(has);
    Some(done)
}

fn set_flags(h: Handle<'_>, has: u32, want: u32, problems: &mut Problems) {
    let goal = (has & !FLAGS_KEPT) | want;
    if goal == has || h.set_flags(goal).is_ok() {
        return;
    }
    // One flag that is refused must not keep the others out: one by one, those that lock last.
    let (mut reached, mut refused, mut cause) = (has, 0, None);
    let differ = goal ^ has;
    let bits = (0..32).map(|i| 1u32 << i).filter(|bit| differ & bit != 0);
    let (locking, plain): (Vec<u32>, Vec<u32>) = bits.partition(|bit| bit & FLAGS_LOCKING != 0);
    for bit in plain.into_iter().chain(locking) {
        match h.set_flags(reached ^ bit) {
            Ok(()) => reached ^= bit,
            Err(e) => (refused, cause) = (refused | bit, Some(e)),
        }
    }
    if let Some(cause) = cause {
        problems.push(Problem::new(What::Flags(refused), cause));
    }
}

/// What step 1 achieved.
#[derive(Clone, Copy)]
struct Given {
    uid: bool,
    gid: bool,
    /// Something was changed, and the kernel may have cleared mode bits with it.
    changed: bool,
}

fn give(h: Handle<'_>, now: &Now, wanted: &Wanted<'_>, shared: &Shared, problems: &mut Problems) -> Given {
    let Some((uid, gid)) = wanted.owner else {
        return Given { uid: false, gid: false, changed: false };
    };
    let mut given = Given { uid: uid == now.uid, gid: gid == now.gid, changed: false };
    if given.uid && given.gid {
        return given;
    }
    // All ones would mean 'leave it' to the kernel.
    let new_uid = (!given.uid && uid != u32::MAX).then(|| Uid::from_raw(uid));
    let new_gid = (!given.gid && gid != u32::MAX).then(|| Gid::from_raw(gid));
    let mut refused = if uid == u32::MAX || gid == u32::MAX { Errno::INVAL } else { Errno::PERM };
    if (new_uid.is_some() || new_gid.is_some()) && (new_uid.is_none() || shared.may_chown()) {
        // A group alone, as an ordinary user: only one of the user's own.
        if new_uid.is_some() || shared.may_chgrp(gid) {
            match h.chown(new_uid, new_gid) {
                Ok(()) => {
                    given = Given {
                        uid: given.uid || new_uid.is_some(),
                        gid: given.gid || new_gid.is_some(),
                        changed: true,
                    };
                }
                Err(e) => {
                    shared.chown_failed(e);
                    refused = e;
                }
            }
        }
    }
    // Half of it is better than nothing, and the group is what an ordinary user may change.
    if !given.gid && new_uid.is_some() && new_gid.is_some() && shared.may_chgrp(gid) && h.chown(None, new_gid).is_ok() {
        (given.gid, given.changed) = (true, true);
    }
    if !given.uid {
        problems.push(Problem::new(What::Owner, refused));
    }
    if !given.gid {
        problems.push(Problem::new(What::Group, refused));
    }
    given
}

fn set_mode(h: Handle<'_>, now: &Now, wanted: &Wanted<'_>, given: Given, changed_mode: bool, problems: &mut Problems) {
    let mode = wanted.mode & if now.kind == Kind::Dir { 0o7777 } else { mode_kept(given.uid, given.gid) };
    if mode != wanted.mode & 0o7777 {
        problems.push(Problem::new(What::Mode, Errno::PERM));
    }
    let special = (now.mode | mode) & (SETUID | SETGID) != 0;
    if mode == now.mode && !(given.changed && special) && !changed_mode {
        return;
    }
    if let Err(e) = h.chmod(mode) {
        problems.push(Problem::new(What::Mode, e));
    } else if mode & 0o7000 != 0
        && super::entry::stat_fd(h.fd()).is_ok_and(|s| s.mode != mode && (s.mode ^ mode) & 0o7000 != 0)
    {
        // The kernel drops setgid silently for those outside the group.
        problems.push(Problem::new(What::Mode, Errno::PERM));
    }
}

/// Times that some file systems can't hold are clamped by the kernel without a word: checked when they are far off.
fn set_times(h: Handle<'_>, time: Time) -> rustix::io::Result<()> {
    h.set_mtime(time)?;
    let ordinary = (0..i64::from(i32::MAX)).contains(&time.sec);
    if !ordinary && super::entry::stat_fd(h.fd())?.mtime.sec != time.sec {
        return Err(Errno::OVERFLOW);
    }
    Ok(())
}

fn is_acl(name: &[u8]) -> bool {
    name == ACL_ACCESS || name == ACL_DEFAULT
}

/// Attributes that are the entry's own, and so must go when they are not wanted. Labels that the system gives by its
/// own rules (SELinux, IMA, NFS ACLs) are replaced but not removed.
fn is_removable(name: &[u8]) -> bool {
    is_acl(name) || name == b"security.capability" || name.starts_with(b"user.") || name.starts_with(b"trusted.")
}

struct Xattrs<'a> {
    h: Handle<'a>,
    wanted: &'a Wanted<'a>,
    /// Names that the entry has now, each ended by a zero byte.
    had: &'a [u8],
    /// Values may be there already, and extra attributes are to be removed.
    any: bool,
    /// The mode was changed to get at attributes.
    changed_mode: Cell<bool>,
}

impl Xattrs<'_> {
    /// The ACLs or all the others: first what must go, then what must be there.
    fn apply(&self, acls: bool, problems: &mut Problems) {
        for name in self.had.split(|&b| b == 0) {
            if is_acl(name) == acls && (self.any || acls) && is_removable(name) && !self.is_wanted(name) {
                self.report(name, self.retry(|| self.h.remove_xattr(name)), problems);
            }
        }
        for (name, value) in self.wanted.extras.xattrs.iter().filter(|(name, _)| is_acl(name) == acls) {
            let same = self.any && self.has(name) && self.h.xattr(name).is_ok_and(|v| v.as_ref() == Some(value));
            if !same {
                self.report(name, self.retry(|| self.h.set_xattr(name, value)), problems);
            }
        }
    }

    /// Whether there is anything to be removed or set.
    fn differ(&self) -> bool {
        let goes = |name: &[u8]| !name.is_empty() && is_removable(name) && !self.is_wanted(name);
        let is_there =
            |name: &[u8], value: &[u8]| self.has(name) && self.h.xattr(name).is_ok_and(|v| v.as_deref() == Some(value));
        self.had.split(|&b| b == 0).any(goes)
            || !self.wanted.extras.xattrs.iter().all(|(name, value)| is_there(name, value))
    }

    /// `user.` attributes of an older entry that its owner may not write to: possible with another mode, and the wanted
    /// one comes later anyway.
    fn retry(&self, call: impl Fn() -> rustix::io::Result<()>) -> rustix::io::Result<()> {
        match call() {
            Err(Errno::ACCESS) if self.any => {
                self.h.chmod(0o600 | (self.wanted.mode & 0o700))?;
                self.changed_mode.set(true);
                call()
            }
            other => other,
        }
    }

    fn report(&self, name: &[u8], result: rustix::io::Result<()>, problems: &mut Problems) {
        if let Err(e) = result {
            problems.push(Problem::new(What::Xattr(name.into()), e));
        }
    }

    fn is_wanted(&self, name: &[u8]) -> bool {
        self.wanted.extras.xattrs.iter().any(|(n, _)| n == name)
    }

    fn has(&self, name: &[u8]) -> bool {
        self.had.split(|&b| b == 0).any(|n| n == name)
    }
}
