//! The config and the keys: what everything else is judged by. Whose signature counts is told by certificates alone.

use super::context::Context;
use super::finding::{Findings, ObjectKind};
use crate::Result;
use crate::lock::lock;
use drumlin_format::key::Role;
use drumlin_format::{KeyId, Signer, SnapshotId};
use drumlin_repo::names;
use drumlin_seal::VerifyingKey;
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

/// So many of the objects that an unknown key is said to have signed are named.
const UNKNOWN_NAMED: usize = 3;

/// The keys that the owner has certified, those that were revoked since among them: what they signed before is their
/// word.
pub(super) struct Signers {
    keys: HashMap<KeyId, (Role, VerifyingKey)>,
    unknown: Mutex<BTreeMap<KeyId, Unknown>>,
    /// Key objects that have no copy.
    pub lacking_copies: u64,
}

/// What is said to be signed by a key that nobody has certified, as far as can be seen.
#[derive(Default)]
struct Unknown {
    objects: u64,
    first: Vec<String>,
    snapshots: Vec<SnapshotId>,
}

/// Look again at the config, which was read when the repository was opened, and at its copy. How many copies there are
/// not.
pub(super) fn config(context: &Context) -> Result<u64> {
    let examined = context.repository.examine_config()?;
    for (name, cause) in examined.troubles {
        context.findings.add(ObjectKind::Config, &name, cause);
    }
    Ok(u64::from(examined.lacks_copy))
}

/// Look at the generations of the secrets, which were read when the repository was opened.
pub(super) fn generations(context: &Context) -> Result<()> {
    let repository = context.repository;
    let generations = repository.generations();
    let tell = |number, cause: String| context.findings.add(ObjectKind::Generation, &names::generation(number), cause);
    for (number, cause) in generations.broken() {
        tell(*number, cause.clone());
    }
    if generations.newest() < generations.expected() {
        let number = generations.expected();
        tell(number, "it isn't there, though it is the newest: what is encrypted with its secrets can't be read, and nothing can be written".into());
    }
    for (name, cause) in repository.generation_troubles()? {
        context.findings.add(ObjectKind::Generation, &name, cause);
    }
    Ok(())
}

impl Signers {
    /// Read and check the key objects.
    pub fn read(context: &Context) -> Result<Self> {
        let secrets = context.repository.secrets();
        let mut keys = HashMap::new();
        if let Some(signing) = &secrets.signing {
            keys.insert(secrets.key, (secrets.role, signing.verifying()));
        }
        let (mut found_own, mut lacking_copies) = (false, 0);
        for id in context.repository.key_ids()? {
            context.go_on()?;
            found_own |= id == secrets.key;
            let examined = context.repository.examine_key(id)?;
            lacking_copies += u64::from(examined.lacks_copy);
            for (name, cause) in examined.troubles {
                context.findings.add(ObjectKind::Key, &name, cause);
            }
            if let Some(certificate) = examined.object {
                keys.extend(certificate.verifying.map(|verifying| (id, (certificate.role, verifying))));
            }
        }
        if !found_own {
            let cause =
                "it isn't there, though it is the key in use: only a recovery file opens the repository with it";
            context.findings.add(ObjectKind::Key, &names::key(secrets.key), cause);
        }
        Ok(Signers { keys, unknown: Mutex::default(), lacking_copies })
    }

    /// Whether the signer of an object, of a snapshot perhaps, may have made it. If not, it is told.
    pub fn check(
        &self,
        findings: &Findings,
        (kind, name): (ObjectKind, &str),
        signer: &Signer,
        may: impl Fn(Role) -> bool,
        snapshot: Option<SnapshotId>,
    ) -> bool {
        let Some((role, verifying)) = self.keys.get(&signer.key) else {
            let mut unknown = lock(&self.unknown);
            let unknown = unknown.entry(signer.key).or_default();
            unknown.objects += 1;
            unknown.snapshots.extend(snapshot);
            if unknown.first.len() < UNKNOWN_NAMED {
                unknown.first.push(format!("'{name}'"));
            }
            return false;
        };
        let cause = if !may(*role) {
            format!("it is signed by key {}, which is a {} key and may not sign it", signer.key, role.name())
        } else if signer.verify(verifying).is_err() {
            format!("the signature on it is not that of key {}, which it names", signer.key)
        } else {
            return true;
        };
        let number = findings.add(kind, name, cause);
        snapshot.into_iter().for_each(|id| findings.whole(number, id));
        false
    }

    /// Tell of the keys that are missing.
    pub fn finish(&self, findings: &Findings) {
        let mut unknown = lock(&self.unknown);
        for (key, unknown) in std::mem::take(&mut *unknown) {
            let more = unknown.objects - unknown.first.len() as u64;
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let cause = format!(
                "the owner has certified no such key, though it is named as the signer of {}{more}: who wrote them can't be told",
                unknown.first.join(", ")
            );
            let number = findings.add(ObjectKind::Key, &names::key(key), cause);
            unknown.snapshots.into_iter().for_each(|id| findings.whole(number, id));
        }
    }
}
