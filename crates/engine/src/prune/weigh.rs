//! What each pack holds that is needed, what it would cost to write it anew without the rest, and so which go and which
//! are written anew.

use super::choose::{self, Candidate, Limits};
use super::{Options, Survey, Unused};
use crate::Result;
use crate::collect::ground::Ground;
use crate::collect::places::Places;
use crate::collect::repack::{self, Cost};
use crate::monitor::Problem;
use crate::reach::marks::Marks;
use drumlin_format::PackId;
use drumlin_repo::{PackInfo, Repository, names};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// A share of packs to be sealed with newer secrets is so much at the least: what is small is done in one run.
const REKEY_BYTES: u64 = 1 << 30;
/// Far away so many tables are on their way while others are weighed.
const TABLES_AHEAD: usize = 16;

/// Weighs packs by what is marked of them, again and again while there is more.
pub(super) struct Scales<'a> {
    pub repository: &'a Repository,
    pub ground: &'a Ground,
    pub places: &'a Places,
    pub options: &'a Options,
    /// Packs that may go at any time by somebody else's plan, or never. What is needed and elsewhere, too, isn't marked
    /// in them.
    pub condemned: &'a BTreeSet<PackId>,
    /// The generation that is written now.
    pub newest: u32,
    /// What packs came to, at so many chunks that are needed.
    pub known: HashMap<PackId, (u32, Weight)>,
    /// Packs whose tables can't be read, and that stay therefore, with what is to be told of them.
    pub damaged: BTreeMap<PackId, Problem>,
}

/// What a pack comes to.
#[derive(Clone, Copy)]
pub(super) enum Weight {
    /// Writing it anew would cost so much.
    Of(Cost),
    /// It lies in cold storage, and stays as it is: to see what of it could go costs more than that.
    Frozen,
    /// Its table can't be read: it stays as it is.
    Damaged,
}

/// Which packs go, and what that comes to.
pub(super) struct Choice {
    /// Packs of which nothing is needed.
    pub unused: Vec<PackId>,
    /// Packs to be written anew.
    pub repack: Vec<PackInfo>,
    /// What it comes to, but for what is no pack that the index names.
    pub survey: Survey,
}

impl Choice {
    /// All that would go.
    pub fn goes(&self) -> HashSet<PackId> {
        self.unused.iter().copied().chain(self.repack.iter().map(|info| info.id)).collect()
    }
}

impl<'a> Scales<'a> {
    /// What is to be told of packs that stay as they are: because of what the index says of them, or because they can't
    /// be read.
    pub fn problems(&self) -> impl Iterator<Item = Problem> {
        let contested = self.ground.packs.iter().filter(|(id, _)| self.is_contested(id)).map(|(id, (kind, _))| {
            let cause = match self.places.keys().unsettled.contains(id) {
                false => {
                    "it stays as it is: two index objects disagree about it; the index is corrected by its own table"
                }
                true => "it stays as it is: two index objects disagree about it, and its own table can't be read now",
            };
            Problem::damage(names::pack(*kind, *id), cause)
        });
        contested.chain(self.damaged.values().cloned())
    }

    /// What is needed of it nobody knows before its index objects are made anew, by what it says itself.
    fn is_contested(&self, pack: &PackId) -> bool {
        let keys = self.places.keys();
        // What a plan condemns goes by what it says itself.
        keys.contested.contains(pack) && (!self.condemned.contains(pack) || keys.unsettled.contains(pack))
    }

    /// Choose, by what is marked now.
    pub fn choose(&mut self, marks: &Marks) -> Result<Choice> {
        let (mut unused, mut candidates, mut shunned) = (Vec::new(), Vec::new(), Vec::new());
        let mut survey = Survey::default();
        // Far away the next ones are on their way while one is weighed.
        let to_weigh: Vec<&PackInfo> = self.ground.packs.keys().filter_map(|id| self.to_weigh(id, marks)).collect();
        let mut to_weigh = to_weigh.into_iter();
        let reader = self.places.reader().clone();
        to_weigh.by_ref().take(TABLES_AHEAD).for_each(|info| reader.expect_table(info));
        for (id, (kind, len)) in &self.ground.packs {
            survey.all.add(*len);
            let Some((info, chunks)) = self.ground.named.get(id) else { continue };
            if self.is_contested(id) {
                survey.needed += len;
                continue;
            }
            let live = marks.of(id).map_or(0, |m| m.live);
            if live == 0 {
                unused.push(*id);
                continue;
            }
            let weight = match self.known.get(id) {
                Some((then, weight)) if *then == live => *weight,
                _ => {
                    if self.to_weigh(id, marks).is_some() {
                        to_weigh.next().into_iter().for_each(|info| reader.expect_table(info));
                    }
                    let weight = self.weigh(info, *chunks, live, marks)?;
                    self.known.insert(*id, (live, weight));
                    weight
                }
            };
            let cost = match weight {
                Weight::Of(cost) => cost,
                Weight::Frozen | Weight::Damaged => {
                    survey.needed += len;
                    continue;
                }
            };
            survey.needed += len - cost.unused;
            survey.unused += cost.unused;
            let older = repack::can_renew(self.repository, info).then(|| number_of(self.repository, info.generation));
            if info.generation != self.newest && older.is_none() {
                survey.older_closed.add(*len);
            }
            // What is needed of it is to be where nobody's plan takes it away.
            if self.condemned.contains(id) {
                shunned.push(*id);
            }
            let Cost { unused, drops, moves } = cost;
            candidates.push(Candidate { pack: *id, kind: *kind, older, len: *len, unused, drops, moves });
        }
        let mut chosen = choose::choose(&candidates, survey.needed, self.limits(&survey));
        chosen.extend(shunned);
        chosen.sort_unstable();
        chosen.dedup();
        for candidate in candidates.iter().filter(|c| chosen.binary_search(&c.pack).is_ok()) {
            survey.repacked.add(candidate.len);
            if candidate.older.is_some() {
                survey.rekeyed.add(candidate.len);
            }
            survey.moves += candidate.moves;
            survey.unused -= candidate.drops;
        }
        survey.older = survey.older_closed;
        let stays = |c: &&Candidate| c.older.is_some() && chosen.binary_search(&c.pack).is_err();
        candidates.iter().filter(stays).for_each(|c| survey.older.add(c.len));
        unused.sort_unstable();
        unused.iter().for_each(|pack| survey.removed.add(self.ground.packs[pack].1));
        let repack = chosen.iter().map(|pack| self.ground.named[pack].0.clone()).collect();
        Ok(Choice { unused, repack, survey })
    }

    /// A pack whose table has to be read to weigh it.
    fn to_weigh(&self, id: &PackId, marks: &Marks) -> Option<&'a PackInfo> {
        let ground: &'a Ground = self.ground;
        let (info, chunks) = ground.named.get(id)?;
        let live = marks.of(id).map_or(0, |m| m.live);
        let is_known = self.known.get(id).is_some_and(|(then, _)| *then == live);
        let is_read = live > 0 && !is_known && !self.is_contested(id) && !self.is_whole(info, *chunks, live);
        is_read.then_some(info)
    }

    /// Whether all of a pack is needed, and it isn't so small that it should go into another one.
    fn is_whole(&self, info: &PackInfo, chunks: u32, live: u32) -> bool {
        let small = info.len < u64::from(self.repository.config().pack_bytes) / choose::SMALL_PART;
        live == chunks && !small
    }

    fn weigh(&mut self, info: &PackInfo, chunks: u32, live: u32, marks: &Marks) -> Result<Weight> {
        if self.is_whole(info, chunks, live) {
            return Ok(Weight::Of(Cost { unused: 0, drops: 0, moves: info.len }));
        }
        match self.places.reader().table(info) {
            Ok(table) => {
                Ok(Weight::Of(repack::cost(self.repository, info, &table, marks, self.options.max_unused.spare())))
            }
            Err(e) if e.is_damage() => {
                let problem = Problem::damage(info.name(), format!("it stays as it is: {}", e.cause()));
                self.damaged.insert(info.id, problem);
                Ok(Weight::Damaged)
            }
            Err(e) if e.frozen().is_some() => Ok(Weight::Frozen),
            Err(e) => Err(e.into()),
        }
    }

    fn limits(&self, survey: &Survey) -> Limits {
        let rekey = match self.options.max_rekey {
            Unused::Percent(share) if share > 0.0 => {
                ((survey.all.bytes as f64 * share / 100.0) as u64).max(REKEY_BYTES)
            }
            Unused::Percent(_) => 0,
            Unused::Bytes(bytes) => bytes,
            Unused::Unlimited => u64::MAX,
        };
        let pack_bytes = u64::from(self.repository.config().pack_bytes);
        let repack = self.options.max_repack.unwrap_or(u64::MAX);
        Limits { unused: self.options.max_unused, repack, rekey, pack_bytes }
    }
}

/// The number of a generation, by its tag.
fn number_of(repository: &Repository, tag: u32) -> u32 {
    repository.secrets().generation(tag).map_or(0, |of| of.number)
}
