//! One attempt at a check: which part follows which, and what each needs of the others.

use super::bad::Bad;
use super::bands;
use super::context::Context;
use super::finding::ObjectKind;
use super::nodes::Nodes;
use super::packs::{Pack, Packs, object_kind};
use super::read::{self, Outcome, PackReader};
use super::rotation::{Candidate, Rotation};
use super::signers::{self, Signers};
use super::small::{self, Sessions};
use super::trees::{self, Met};
use super::{Limit, Part, ReadReport, Report, touch};
use crate::Result;
use crate::lock::lock;
use crate::monitor::add;
use crate::reach::bits::Bits;
use crate::threads::on_threads;
use drumlin_format::IndexId;
use drumlin_format::pack::{FOOTER_BYTES, PackKind};
use drumlin_repo::band::{Bands, Through};
use drumlin_repo::collection::Desk;
use drumlin_repo::pack::{Damage, Healed, Reader};
use drumlin_repo::{Cache, Index, names};
use drumlin_seal::checksum;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How an attempt ended.
pub(super) enum Ended {
    /// Everything was looked at.
    Done,
    /// A prune has removed what it was looking at: what is there now has to be looked at from the start.
    Changed,
}

/// Bytes of blocks that the reader of trees keeps for each thread: more than twice those of a leaf, a body, an inner
/// node and a list.
const TREE_CACHE_BYTES: usize = 3 << 20;
/// Each time so many more bytes have been read, it is saved which packs were.
const SAVE_BYTES: u64 = 1 << 30;

/// Check once. What is found goes to the findings; what was looked at, to the report.
pub(super) fn run(context: &Context, cache: &Arc<Cache>, read: Option<Part>, report: &mut Report) -> Result<Ended> {
    let lacking = signers::config(context)?;
    signers::generations(context)?;
    let signers = Signers::read(context)?;
    report.lacking_copies = lacking + signers.lacking_copies;
    let ended = with_signers(context, cache, read, &signers, report);
    // What is sealed with newer secrets looks damaged to this key.
    context.repository.refuse_rekeyed()?;
    signers.finish(context.findings);
    ended
}

fn with_signers(
    context: &Context,
    cache: &Arc<Cache>,
    read: Option<Part>,
    signers: &Signers,
    report: &mut Report,
) -> Result<Ended> {
    // What is in a band was named by the index before the band was made.
    let bands = Bands::look(context.repository)?;
    // In this order: all that a snapshot of this listing refers to is in the index that is read after it, and all packs
    // that this index names are there when packs are listed; if no prune comes between.
    let listed = small::list_snapshots(context)?;
    let sessions = small::sessions(context, signers)?;
    report.open_sessions = sessions.open;
    report.missing = small::missing(context)?;
    small::forgotten(context, signers)?;
    let trees = small::snapshots(context, signers, &sessions, &listed)?;
    if context.repository.secrets().meta.is_none() {
        report.limits.push(Limit::Trees);
    }
    let packs = Packs::read(context, cache, signers)?;
    let bad = Bad::default();
    if packs.vanished || !present(context, &packs, &sessions, &bad)? {
        return Ok(Ended::Changed);
    }
    report.index_objects = packs.objects.len() as u64;
    report.packs = packs.packs.len() as u64;
    report.pack_bytes = packs.packs.iter().map(|p| p.info.len).sum();
    report.leftover = packs.leftover;
    report.parity = bands::look(context, &bands, &packs)?;

    let index = match packs.unreadable.is_empty() {
        true => Index::open(context.repository, cache.clone()),
        false => Index::open_without(context.repository, cache.clone(), packs.unreadable.clone()),
    };
    let index = match index {
        // One that was listed just now is gone or, having come since, can't be read.
        Err(e) if e.is_of_one_object() => return Ok(Ended::Changed),
        other => Arc::new(other?),
    };
    let kept = TREE_CACHE_BYTES * context.workers;
    let reader = Reader::new(context.repository.clone(), index.clone(), cache.clone(), kept).without_parity();
    let through = (!bands.all.is_empty()).then(|| {
        let seen = context.repository.through(&bands);
        Reader::new(seen, index.clone(), cache.clone(), TREE_CACHE_BYTES)
    });
    let through = through.as_ref();
    let nodes = Nodes { context, packs: &packs, index: &index, reader: &reader, through, bad: &bad };
    let of_nodes = || Bits::new(&packs.keys, |kind| kind == PackKind::Tree);
    let met = trees::walk(&nodes, &of_nodes(), &trees)?;
    let suspicious = met.nowhere + met.lost > 0;
    // A snapshot that was forgotten meanwhile may have been pruned before the index was read.
    if met.removed > 0 || suspicious && !(packs.still_stand(context)? && small::still_listed(context, &listed)?) {
        return Ok(Ended::Changed);
    }
    report.snapshots = trees.len() as u64;
    (report.entries, report.nodes, report.chunks, report.lookups) = (met.entries, met.nodes, met.chunks, met.lookups);
    let missing = missing(context, &packs, &met);

    if let Some(part) = read {
        let work = Reading { context, packs: &packs, reader: &reader, signers, bad: &bad, cache };
        work.run(part, report)?;
        if let Some(parity) = &mut report.parity {
            bands::read(context, cache, &bands, part, parity)?;
        }
    }
    heal(context, &packs, &reader, &bad)?;
    if let Some(through) = through {
        heal_by_bands(context, &packs, &bands, through, &bad)?;
    }
    if bad.any() || suspicious {
        bad.count(context, &packs)?;
        touch::touch(&nodes, of_nodes(), missing, &trees)?;
    }
    Ok(Ended::Done)
}

/// See which packs are missing or of another length than they should be. `false`: a prune is at work.
fn present(context: &Context, packs: &Packs, sessions: &Sessions, bad: &Bad) -> Result<bool> {
    let mut stand = None;
    for (number, pack) in packs.packs.iter().enumerate() {
        let number = number as u32;
        let tell = |cause: String| context.findings.add(object_kind(pack.info.kind), &pack.name(), cause);
        let len = match pack.listed {
            Some(len) => len,
            None => {
                let by: Vec<_> = pack.named_by.iter().map(|n| packs.objects[*n as usize]).collect();
                if by.iter().all(|object| sessions.evicted.iter().any(|session| object.is_of(session))) {
                    // A writer that woke up after its eviction names what was removed as nobody's.
                    bad.all_of(number, None);
                    continue;
                }
                if stand.is_none() {
                    stand = Some(packs.still_stand(context)?);
                }
                if stand == Some(false) {
                    return Ok(false);
                }
                let found = context.repository.store().len(&pack.name()).map_err(drumlin_repo::Error::from)?;
                let Some(len) = found else {
                    // Evicted since sessions were looked at, and it woke up after that.
                    if evicted_by_now(context, &by)? {
                        return Ok(false);
                    }
                    let cause = format!("it isn't there, though '{}' names it", names::index(by[0]));
                    bad.all_of(number, Some(tell(cause)));
                    continue;
                };
                len
            }
        };
        if len != pack.info.len {
            let finding = tell(format!("it is {len} bytes long, and should be {}", pack.info.len));
            // Blocks are read by the table, and that is behind them.
            if len < pack.info.table_offset + u64::from(pack.info.table_len) {
                bad.all_of(number, Some(finding));
            }
        }
    }
    Ok(true)
}

/// Whether all these index objects are of sessions that are evicted now. A decision that can't be read is told
/// elsewhere.
fn evicted_by_now(context: &Context, objects: &[IndexId]) -> Result<bool> {
    match Desk::new(context.repository).evicted(objects) {
        Ok(evicted) => Ok(objects.iter().all(|object| evicted.iter().any(|session| object.is_of(session)))),
        Err(e) if e.is_of_one_object() => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Which of the damaged packs their parity heals: that is tried, not believed.
fn heal(context: &Context, packs: &Packs, reader: &Reader, bad: &Bad) -> Result<()> {
    for (number, pack) in packs.packs.iter().enumerate() {
        let Some(finding) = context.findings.about(&pack.name()).filter(|_| pack.listed.is_some()) else { continue };
        context.go_on()?;
        let Some(mut healed) = Healed::open(context.repository, &pack.info).map_or_else(gone, Ok)? else { continue };
        let Some(damage) = healed.look_at_all().map(Some).map_or_else(gone, Ok)? else { continue };
        let unread = bad.of(number as u32, pack.chunks);
        if context.findings.is_made_so(finding) && damage == Damage::default() && unread.is_empty() {
            continue;
        }
        let heals = damage.is_healed() && (unread.is_empty() || can_read(context, pack, &unread, reader)?);
        context.findings.healed(finding, heals);
        if heals {
            bad.forgive(number as u32);
        }
    }
    Ok(())
}

/// Which of the packs that are gone, or damaged beyond their own parity, their bands make again: that is tried, too.
fn heal_by_bands(context: &Context, packs: &Packs, bands: &Bands, through: &Reader, bad: &Bad) -> Result<()> {
    let mut sight = None;
    for (number, pack) in packs.packs.iter().enumerate() {
        let Some(finding) = context.findings.about(&pack.name()) else { continue };
        let in_band =
            bands.all.iter().any(|band| band.head.seat(&pack.info.id).is_some_and(|(_, m)| m.len == pack.info.len));
        if !in_band || context.findings.is_healed(finding) || context.findings.is_made_so(finding) {
            continue;
        }
        context.go_on()?;
        let sight = sight.get_or_insert_with(|| Through::new(context.repository, bands));
        let unread = bad.of(number as u32, pack.chunks);
        let heals = if read::opens(context.repository, pack.info.kind) {
            can_read(context, pack, &unread, through)?
        } else {
            // What is inside nobody here can open: all of it has to be as it was when the band was made.
            can_read(context, pack, &[], through)? && is_as_it_was(context, pack, sight)?
        };
        if heals {
            context.findings.by_band(finding);
            bad.forgive(number as u32);
        }
    }
    Ok(())
}

/// Whether all of a pack can be had as its band has it.
fn is_as_it_was(context: &Context, pack: &Pack, through: &Through) -> Result<bool> {
    let (mut piece, mut at, name) = (Vec::new(), 0, pack.name());
    while at < pack.info.len {
        context.go_on()?;
        piece.resize((pack.info.len - at).min(1 << 20) as usize, 0);
        match through.read_surely(&name, at, &mut piece) {
            Err(e) if e.is_of_one_object() => return Ok(false),
            other => other?,
        }
        at += piece.len() as u64;
    }
    Ok(true)
}

/// A pack that can't be looked at is not healed; any other failure ends the check.
fn gone<T>(error: drumlin_repo::Error) -> Result<Option<T>> {
    if error.is_of_one_object() { Ok(None) } else { Err(error.into()) }
}

/// Whether these chunks of a pack can be read through its parity, or for a role that can't read them, the table.
fn can_read(context: &Context, pack: &Pack, ordinals: &[u32], reader: &Reader) -> Result<bool> {
    let read = || -> drumlin_repo::Result<bool> {
        let table = reader.healed_table(&pack.info)?;
        if checksum(&table.encode()) != pack.table_sum {
            return Ok(false);
        }
        let opened = if read::opens(context.repository, pack.info.kind) { ordinals } else { &[] };
        for ordinal in opened {
            let Some(chunk) = table.chunks.get(*ordinal as usize) else { return Ok(false) };
            reader.healed_chunk(&pack.info, *ordinal, pack.info.kind, &chunk.id)?;
        }
        Ok(true)
    };
    match read() {
        Err(e) if e.is_of_one_object() => Ok(false),
        other => Ok(other?),
    }
}

/// Whom to blame for chunks that no index object names: those that can't be read, or the index as a whole.
fn missing(context: &Context, packs: &Packs, met: &Met) -> Vec<u32> {
    match (met.nowhere, packs.unreadable_findings.is_empty()) {
        (0, _) => packs.unreadable_findings.clone(),
        (nowhere, false) => {
            let cause = format!("{} to chunks that no other index object names", references(nowhere));
            for id in &packs.unreadable {
                context.findings.add(ObjectKind::Index, &names::index(*id), cause.clone());
            }
            packs.unreadable_findings.clone()
        }
        (nowhere, true) => {
            let cause = format!(
                "{} to chunks that no index object names: an index object, or a pack that one named, was removed by somebody \
                 who should not have done so",
                references(nowhere)
            );
            vec![context.findings.add(ObjectKind::Index, names::INDEX, cause)]
        }
    }
}

fn references(count: u64) -> String {
    match count {
        1 => "a reference of a snapshot leads".into(),
        _ => format!("{count} references of snapshots lead"),
    }
}

/// All that is needed to read packs.
struct Reading<'a> {
    context: &'a Context<'a>,
    packs: &'a Packs,
    reader: &'a Reader,
    signers: &'a Signers,
    bad: &'a Bad,
    cache: &'a Cache,
}

/// What the threads share.
struct Progress {
    rotation: Rotation,
    report: ReadReport,
    unsaved: u64,
}

impl Reading<'_> {
    fn run(&self, part: Part, report: &mut Report) -> Result<()> {
        for (kind, limit) in [(PackKind::Tree, Limit::TreeBlocks), (PackKind::Data, Limit::DataBlocks)] {
            if !read::opens(self.context.repository, kind) {
                report.limits.push(limit);
            }
        }
        let numbers: Vec<u32> =
            (0..self.packs.packs.len() as u32).filter(|n| self.packs.pack(*n).listed.is_some()).collect();
        let candidate = |n: &u32| Candidate { id: self.packs.pack(*n).info.id, bytes: self.packs.pack(*n).info.len };
        let candidates: Vec<Candidate> = numbers.iter().map(candidate).collect();
        // Another key on this machine may be able to read more than this one.
        let name = format!("check {}", self.context.repository.secrets().key);
        let mut rotation = Rotation::load(self.cache, &name);
        let choice = rotation.begin(part, &candidates);
        rotation.save(self.context.repository, self.cache, &name);
        let chosen: Vec<u32> = choice.packs.iter().map(|at| numbers[*at]).collect();
        let counters = self.context.monitor.counters();
        add(&counters.expected_bytes, chosen.iter().map(|n| self.to_read(*n)).sum());
        let progress = Mutex::new(Progress {
            rotation,
            report: ReadReport {
                bytes_before: choice.before.0,
                packs_before: choice.before.1,
                packs_total: candidates.len() as u64,
                bytes_total: candidates.iter().map(|c| c.bytes).sum(),
                ..ReadReport::default()
            },
            unsaved: 0,
        });
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let ended = on_threads("check", self.context.workers, || {
            let mut packs = PackReader::new(self.context, self.packs, self.reader, self.signers, self.bad);
            while !failed.load(Ordering::Relaxed)
                && let Some(number) = chosen.get(next.fetch_add(1, Ordering::Relaxed))
            {
                let read = packs.read(*number).and_then(|outcome| self.took(*number, outcome, &progress, &name));
                if read.is_err() {
                    failed.store(true, Ordering::Relaxed);
                    return read;
                }
            }
            Ok(())
        });
        let Progress { mut rotation, report: read, .. } = progress.into_inner().unwrap_or_else(PoisonError::into_inner);
        report.read = Some(read);
        if ended.is_ok() {
            rotation.finish();
        }
        rotation.save(self.context.repository, self.cache, &name);
        ended
    }

    /// Bytes that are read of a pack.
    fn to_read(&self, number: u32) -> u64 {
        let info = &self.packs.pack(number).info;
        match read::opens(self.context.repository, info.kind) {
            true => info.len,
            false => u64::from(info.table_len) + (drumlin_format::HEADER_BYTES + FOOTER_BYTES) as u64,
        }
    }

    fn took(&self, number: u32, outcome: Outcome, progress: &Mutex<Progress>, name: &str) -> Result<()> {
        let info = &self.packs.pack(number).info;
        let mut progress = lock(progress);
        if outcome != Outcome::Removed {
            progress.report.packs += 1;
            progress.report.bytes += self.to_read(number);
        }
        if outcome == Outcome::Whole {
            progress.rotation.read(info.id);
        } else if outcome == Outcome::Damaged {
            add(&self.context.monitor.counters().damaged, 1);
        }
        progress.unsaved += info.len;
        if progress.unsaved >= SAVE_BYTES {
            progress.unsaved = 0;
            progress.rotation.save(self.context.repository, self.cache, name);
        }
        Ok(())
    }
}
