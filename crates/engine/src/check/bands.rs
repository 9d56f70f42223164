//! Parity across packs: whether recovery objects are there and as they should be, and which packs they cover.
//!
//! A pack that no band covers is no finding: parity across packs is optional, and what was backed up since the last
//! upkeep isn't covered yet. Nor is a band that somebody is about to make, or to remove: its first object isn't there.

use super::context::Context;
use super::finding::ObjectKind;
use super::packs::Packs;
use super::rotation::{Candidate, Rotation};
use super::{Parity, Part};
use crate::Result;
use crate::lock::lock;
use crate::monitor::add;
use crate::parity::Objects;
use crate::threads::on_threads;
use drumlin_format::{BandId, PackId, RecoveryId};
use drumlin_repo::band::{Band, Bands, Verified};
use drumlin_repo::{Cache, names};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Compare what was listed of bands with what they say, and with the packs; `None`: there are none.
pub(super) fn look(context: &Context, bands: &Bands, packs: &Packs) -> Result<Option<Parity>> {
    if bands.is_empty() {
        return Ok(None);
    }
    let mut report = Parity::default();
    for (id, cause) in &bands.unread {
        let name = names::recovery(*id);
        let there = context.repository.store().len(&name).map_err(drumlin_repo::Error::from)?.is_some();
        if there && still_there(context, id.band())? {
            tell(context, *id, cause);
        }
    }
    let first = |id: &RecoveryId| id.number() == 0;
    let begun: HashSet<BandId> =
        bands.stray.iter().map(|(id, _)| id).filter(|id| first(id)).map(|id| id.band()).collect();
    for (id, len) in &bands.stray {
        if begun.contains(&id.band()) && still_there(context, id.band())? {
            tell(context, *id, "its description of the band can't be read");
        }
        report.objects.add(*len);
    }
    let mut covered = HashSet::new();
    for band in &bands.all {
        band.objects.iter().flatten().for_each(|len| report.objects.add(*len));
        if !band.is_made() {
            let unfinished = band.objects.iter().flatten();
            unfinished.for_each(|len| report.unfinished.add(*len));
            continue;
        }
        for (number, _) in band.wrong() {
            if !still_there(context, band.id())? {
                break;
            }
            let right = band.head.object_len(number);
            let name = names::recovery(band.id().object(number));
            // A listing may leave out what came while it was made.
            let now = context.repository.store().len(&name).map_err(drumlin_repo::Error::from)?;
            let cause = match now {
                Some(now) if now == right => continue,
                None => "it isn't there".into(),
                Some(now) => format!("it is {now} bytes long, and should be {right}"),
            };
            tell(context, band.id().object(number), cause);
        }
        let is_there = |(pack, len): (PackId, u64)| {
            let pack = packs.keys.number(&pack).map(|number| packs.pack(number));
            pack.is_some_and(|pack| pack.info.len == len && pack.listed == Some(len))
        };
        if band.is_whole() && band.head.members().all(|m| is_there((m.pack, m.len))) {
            report.bands += 1;
            covered.extend(band.head.members().map(|m| m.pack));
        }
    }
    for pack in packs.packs.iter().filter(|pack| pack.listed.is_some()) {
        let count = if covered.contains(&pack.info.id) { &mut report.covered } else { &mut report.uncovered };
        count.packs += 1;
        count.bytes += pack.info.len;
    }
    Ok(Some(report))
}

/// Whoever removes a band begins with its first object.
fn still_there(context: &Context, band: BandId) -> Result<bool> {
    let name = names::recovery(band.object(0));
    Ok(context.repository.store().len(&name).map_err(drumlin_repo::Error::from)?.is_some())
}

fn tell(context: &Context, id: RecoveryId, cause: impl Into<String>) {
    context.findings.add(ObjectKind::Recovery, &names::recovery(id), cause);
}

/// Read recovery objects as a whole, or a part of them.
pub(super) fn read(context: &Context, cache: &Cache, bands: &Bands, part: Part, report: &mut Parity) -> Result<()> {
    let objects: Vec<(&Band, u8, u64)> = bands
        .all
        .iter()
        .filter(|band| band.is_made())
        .flat_map(|band| {
            let objects = (0u8..).zip(&band.objects);
            objects.filter_map(move |(number, len)| Some((band, number, (*len)?)))
        })
        .filter(|(band, number, len)| band.head.object_len(*number) == *len)
        .collect();
    let candidate =
        |(band, number, len): &(&Band, u8, u64)| Candidate { id: PackId(band.id().object(*number).0), bytes: *len };
    let candidates: Vec<Candidate> = objects.iter().map(candidate).collect();
    let name = format!("check parity {}", context.repository.secrets().key);
    let mut rotation = Rotation::load(cache, &name);
    let choice = rotation.begin(part, &candidates);
    let (next, rotation) = (AtomicUsize::new(0), Mutex::new((rotation, Objects::default())));
    let ended = on_threads("check", context.workers, || {
        while let Some(at) = choice.packs.get(next.fetch_add(1, Ordering::Relaxed)) {
            context.go_on()?;
            let (band, number, len) = objects[*at];
            let causes = match band.verify(context.repository, number) {
                Ok(verified) => causes(&verified),
                Err(e) if e.is_missing() && !still_there(context, band.id())? => continue,
                Err(e) if e.is_of_one_object() => vec![e.cause()],
                Err(e) => return Err(e.into()),
            };
            add(&context.monitor.counters().bytes, len);
            let mut done = lock(&rotation);
            done.1.add(len);
            if causes.is_empty() {
                done.0.read(candidates[*at].id);
            }
            drop(done);
            causes.into_iter().for_each(|cause| tell(context, band.id().object(number), cause));
        }
        Ok(())
    });
    let (mut rotation, read) = rotation.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.read = Some(read);
    if ended.is_ok() {
        rotation.finish();
    }
    rotation.save(context.repository, cache, &name);
    ended
}

fn causes(verified: &Verified) -> Vec<String> {
    let mut causes = Vec::new();
    if verified.heads > 0 {
        causes.push(format!("its description of the band is damaged in {} of two places", verified.heads));
    }
    if verified.sums > 0 {
        causes.push(format!("the sums of {} slices in it are damaged", verified.sums));
    }
    if verified.slices > 0 {
        causes.push(format!("{} slices of its recovery data are damaged", verified.slices));
    }
    causes
}
