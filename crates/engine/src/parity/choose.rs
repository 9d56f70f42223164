//! Which bands there shall be: a pure choice by what is there.
//!
//! - A band is *sound* if all of its objects are there and all of its packs are in the index and in the storage. Only
//!   sound ones cover what is in them. One with packs that go or are gone is made anew without them.
//! - A band with a pack that the index names and that is lost is *held*: what it holds may be all that the pack can be
//!   made of. It is left as it is, and the others in it are banded anew.
//! - Packs are banded with such of about their length: within a factor of eight. A row is as long as the longest pack.
//! - Of each length at most one band is no more than half full after a run: those that are are merged.
//! - What is in several bands counts in the first of them: sound ones first, then the ones of more packs, then by id.
//!   Everybody comes to the same, and so of two bands of the same packs everybody removes the same one.

use drumlin_format::band::{Member, ROWS_MAX, SEATS_MAX};
use drumlin_format::{BandId, PackId};
use drumlin_repo::band::{Band, Bands, Cost, Recipe};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::str::FromStr;

/// How many packs are coded together, and how many of them may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape {
    /// Packs of a full band.
    pub seats: usize,
    /// Rows of recovery data.
    pub rows: usize,
}

impl Default for Shape {
    /// See docs/decisions/0008-parity-across-packs.md.
    fn default() -> Self {
        Shape { seats: 20, rows: 2 }
    }
}

impl FromStr for Shape {
    type Err = String;

    /// `20+2`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not two numbers such as 20+2: packs, and how many of them may be lost");
        let (seats, rows) = text.split_once('+').ok_or_else(wrong)?;
        let shape = Shape { seats: seats.parse().map_err(|_| wrong())?, rows: rows.parse().map_err(|_| wrong())? };
        if !(1..=SEATS_MAX).contains(&shape.seats) || !(1..=ROWS_MAX).contains(&shape.rows) {
            return Err(format!(
                "from 1 to {SEATS_MAX} packs are coded together, and from 1 to {ROWS_MAX} of them may be lost"
            ));
        }
        Ok(shape)
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}+{}", self.seats, self.rows)
    }
}

/// What the choice rests on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ask {
    /// Packs that shall be covered.
    pub wanted: BTreeMap<PackId, Member>,
    /// Packs that may yet be made of what bands hold.
    pub held: HashSet<PackId>,
    /// Bands whose data was found damaged.
    pub spoiled: HashSet<BandId>,
    /// What was asked for: bands of another shape are made anew. `None`: as most are.
    pub shape: Option<Shape>,
}

/// A band to be made, and those that it takes the place of.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub recipe: Recipe,
    pub replaces: Vec<BandId>,
}

/// What was chosen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    /// Of new bands.
    pub shape: Shape,
    /// Bands to be made.
    pub steps: Vec<Step>,
    /// Bands that stay as they are, all of them sound.
    pub stay: Vec<BandId>,
    /// Bands that nobody needs any more, as it is now.
    pub removable: Vec<BandId>,
    /// Bands that are held for a lost pack.
    pub held: Vec<BandId>,
    /// Wanted packs that are in no sound band as it is now.
    pub uncovered: Vec<Member>,
}

impl Choice {
    /// What making all of it costs.
    pub fn cost(&self, bands: &Bands) -> Cost {
        let mut cost = Cost::default();
        self.steps.iter().for_each(|step| cost += step.recipe.cost(bands));
        cost
    }
}

/// A band as it shall be.
struct Draft {
    seats: Vec<Option<Member>>,
    rows: usize,
    replaces: Vec<BandId>,
    changed: bool,
}

impl Draft {
    fn empty(shape: Shape) -> Self {
        Draft { seats: vec![None; shape.seats], rows: shape.rows, replaces: Vec::new(), changed: true }
    }

    fn shape(&self) -> Shape {
        Shape { seats: self.seats.len(), rows: self.rows }
    }

    fn members(&self) -> impl Iterator<Item = Member> + '_ {
        self.seats.iter().flatten().copied()
    }

    fn taken(&self) -> usize {
        self.members().count()
    }

    fn free(&self) -> usize {
        self.seats.len() - self.taken()
    }

    fn class(&self) -> u32 {
        class(self.members().map(|m| m.len).max().unwrap_or_default())
    }

    fn is_sparse(&self) -> bool {
        self.taken() * 2 <= self.seats.len()
    }

    /// Put packs on free seats, as many as there are.
    fn fill(&mut self, packs: &mut Vec<Member>) {
        for seat in self.seats.iter_mut().filter(|seat| seat.is_none()) {
            let Some(pack) = packs.pop() else { return };
            (*seat, self.changed) = (Some(pack), true);
        }
    }

    /// Take in another's packs, on their seats where those are free.
    fn merge(&mut self, other: Draft) {
        let known: HashSet<PackId> = self.members().map(|m| m.pack).collect();
        let mut rest = Vec::new();
        for (seat, member) in other.seats.iter().enumerate() {
            match member.filter(|m| !known.contains(&m.pack)) {
                Some(member) if self.seats[seat].is_none() => self.seats[seat] = Some(member),
                Some(member) => rest.push(member),
                None => {}
            }
        }
        self.fill(&mut rest);
        self.replaces.extend(other.replaces);
        self.changed = true;
    }
}

/// Packs of one class are banded together.
fn class(len: u64) -> u32 {
    len.max(1).ilog2() / 3
}

/// The shape that most packs have, and of those that are as many the one that bears more.
fn common(bands: &Bands) -> Option<Shape> {
    let mut votes: HashMap<Shape, usize> = HashMap::new();
    for band in bands.all.iter().filter(|band| band.is_made()) {
        let shape = Shape { seats: band.head.seats.len(), rows: band.head.rows };
        *votes.entry(shape).or_default() += band.head.members().count();
    }
    votes.into_iter().max_by_key(|(shape, votes)| (*votes, shape.rows, shape.seats)).map(|(shape, _)| shape)
}

/// Choose.
pub(crate) fn choose(bands: &Bands, ask: &Ask) -> Choice {
    let shape = ask.shape.or_else(|| common(bands)).unwrap_or_default();
    let mut choice = Choice { shape, ..Choice::default() };
    let is_wanted = |m: &Member| ask.wanted.get(&m.pack) == Some(m);
    let is_held = |band: &Band| band.head.members().any(|m| ask.held.contains(&m.pack));
    let fits = |band: &Band| {
        ask.shape.is_none_or(|shape| (shape.seats, shape.rows) == (band.head.seats.len(), band.head.rows))
    };
    choice.held.extend(bands.all.iter().filter(|band| is_held(band)).map(Band::id));
    let usable = |band: &&Band| band.is_whole() && !ask.spoiled.contains(&band.id()) && !is_held(band) && fits(band);
    let mut in_order: Vec<(bool, &Band)> =
        bands.all.iter().filter(usable).map(|band| (band.head.members().all(|m| is_wanted(&m)), band)).collect();
    in_order.sort_by_key(|(sound, band)| (!*sound, Reverse(band.head.members().count()), band.id()));
    let (mut drafts, mut covered, mut now) = (Vec::new(), HashSet::new(), HashSet::new());
    for (sound, band) in in_order {
        now.extend(band.head.members().map(|m| m.pack).filter(|_| sound));
        let mine = |seat: &Option<Member>| seat.filter(|m| is_wanted(m) && !covered.contains(&m.pack));
        let seats: Vec<_> = band.head.seats.iter().map(mine).collect();
        if seats.iter().all(Option::is_none) {
            continue;
        }
        covered.extend(seats.iter().flatten().map(|m| m.pack));
        let seats = if sound { band.head.seats.clone() } else { seats };
        drafts.push(Draft { seats, rows: band.head.rows, replaces: vec![band.id()], changed: !sound });
    }
    merge(&mut drafts);
    let mut loose: BTreeMap<u32, Vec<Member>> = BTreeMap::new();
    for member in ask.wanted.values().filter(|m| !covered.contains(&m.pack)) {
        loose.entry(class(member.len)).or_default().push(*member);
    }
    for (class, packs) in loose {
        seat(&mut drafts, shape, class, packs);
    }
    let mut safe = HashSet::new();
    for draft in drafts {
        if !draft.changed {
            safe.extend(draft.members().map(|m| m.pack));
            choice.stay.extend(draft.replaces);
            continue;
        }
        let Draft { seats, rows, replaces, .. } = draft;
        let recipe = Recipe { seats, rows, from: replaces.clone() }.cheapest(bands);
        choice.steps.push(Step { recipe, replaces });
    }
    choice.uncovered.extend(ask.wanted.values().filter(|m| !now.contains(&m.pack)));
    let needed = |band: &Band| band.head.members().any(|m| is_wanted(&m) && !safe.contains(&m.pack));
    let stays = |band: &Band| choice.stay.contains(&band.id()) || is_held(band) || needed(band);
    choice.removable.extend(bands.all.iter().filter(|band| !stays(band)).map(Band::id));
    choice
}

/// Make few of the bands that are no more than half full.
fn merge(drafts: &mut Vec<Draft>) {
    let mut sparse: BTreeMap<(Shape, u32), Vec<Draft>> = BTreeMap::new();
    let mut rest = Vec::new();
    for draft in drafts.drain(..) {
        match draft.is_sparse() {
            true => sparse.entry((draft.shape(), draft.class())).or_default().push(draft),
            false => rest.push(draft),
        }
    }
    for (_, mut of_class) in sparse {
        // The first to be merged read least.
        of_class.sort_by_key(Draft::taken);
        let mut of_class = of_class.into_iter();
        let Some(mut at_hand) = of_class.next() else { continue };
        for next in of_class {
            if at_hand.free() >= next.taken() {
                at_hand.merge(next);
            } else {
                rest.push(std::mem::replace(&mut at_hand, next));
            }
        }
        rest.push(at_hand);
    }
    *drafts = rest;
}

/// Give packs of one class their seats: first in bands that are made anew anyhow; then in new ones, as long as those
/// get full; what is left in bands that have room, the emptiest first.
fn seat(drafts: &mut Vec<Draft>, shape: Shape, class: u32, mut packs: Vec<Member>) {
    packs.sort_by_key(|m| (m.len, m.pack));
    let fits = |draft: &Draft| draft.shape() == shape && draft.class() == class && draft.free() > 0;
    for draft in drafts.iter_mut().filter(|draft| draft.changed && fits(draft)) {
        draft.fill(&mut packs);
    }
    while packs.len() >= shape.seats {
        let mut draft = Draft::empty(shape);
        draft.fill(&mut packs);
        drafts.push(draft);
    }
    while !packs.is_empty() {
        let roomy = drafts.iter_mut().filter(|draft| !draft.changed && fits(draft));
        match roomy.max_by_key(|draft| draft.free()) {
            Some(draft) => draft.fill(&mut packs),
            None => {
                let mut draft = Draft::empty(shape);
                draft.fill(&mut packs);
                drafts.push(draft);
            }
        }
    }
}

#[cfg(test)]
mod tests;
