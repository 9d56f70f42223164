//! One run: who takes part and what may happen, as the seed says; and what has to be true at its end.

use crate::actors::{Actor, Deed, prune_options};
use crate::base::{Base, OBSERVER};
use crate::book::{Book, no_cache};
use crate::machine;
use crate::sums::Sums;
use crate::turns::Turns;
use crate::world::{Shared, Troubles};
use drumlin_engine::check::{self, check};
use drumlin_engine::monitor::Quiet;
use drumlin_engine::parity;
use drumlin_engine::prune::{self, Unused, prune};
use drumlin_format::PackId;
use drumlin_format::pack::PackKind;
use drumlin_repo::collection::{Board, Desk};
use drumlin_repo::{Repository, names};
use drumlin_store::{Put, Store as _};
use drumlin_testkit::Rng;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// What became of a run.
pub struct Outcome {
    /// What is not as it has to be.
    pub wrong: Vec<String>,
    /// Every call, if wanted.
    pub trace: Vec<String>,
    /// A digest of every call.
    pub digest: u64,
    /// What happened.
    pub sums: Sums,
}

/// A run to be.
pub struct Run<'a> {
    base: &'a Base,
    rng: Rng,
    seed: u64,
    shared: Shared,
    book: Book,
    /// What each actor does.
    cast: Vec<Vec<Deed>>,
}

impl<'a> Run<'a> {
    /// The run of a seed.
    pub fn new(base: &'a Base, seed: u64, trace: bool) -> Self {
        let mut rng = Rng::new(Rng::new(seed).u64());
        let mut deeds = |of: &[Deed], most: usize| -> Vec<Deed> {
            (0..1 + rng.below(most)).filter_map(|_| rng.pick(of).copied()).collect()
        };
        let mut cast = vec![deeds(&[Deed::Backup], 3), deeds(&[Deed::Prune], 3)];
        let others: [&[Deed]; 7] = [
            &[Deed::Backup],
            &[Deed::Prune],
            &[Deed::Parity, Deed::Parity, Deed::Prune],
            &[Deed::Forget],
            &[Deed::Forget, Deed::Undelete],
            &[Deed::Read, Deed::Read, Deed::Backup],
            &[Deed::Check],
        ];
        for _ in 0..1 + seed % 4 {
            let of = others[deeds(&[Deed::Read; 1], 7).len() - 1];
            cast.push(deeds(of, 3));
        }
        let once_in = |rng: &mut Rng, of: &[usize]| rng.pick(of).copied().unwrap_or(0);
        let troubles = Troubles {
            failing: once_in(&mut rng, &[0, 0, 400, 100]),
            killed: once_in(&mut rng, &[0, 0, 500, 150]),
            suspended: once_in(&mut rng, &[0, 200, 50]),
            power: if rng.one_in(4) { 20 + rng.below(600) as u64 } else { 0 },
            late: rng.one_in(4),
            overwrites: rng.one_in(3),
            looks_behind: rng.one_in(2),
        };
        let turns = Turns::new(cast.len(), once_in(&mut rng, &[2, 5, 20, 60]), Rng::new(rng.u64()));
        let shared = Shared::new(base.objects.clone(), turns, troubles, Rng::new(rng.u64()), trace);
        shared.count("runs where nobody creates alone", u64::from(troubles.overwrites));
        shared.count("runs where one looks behind a put", u64::from(troubles.looks_behind));
        Run { base, rng, seed, shared, book: base.book.copy(), cast }
    }

    /// Run it.
    pub fn go(mut self) -> Outcome {
        machine::begin(self.seed);
        self.base.touch(1);
        let caches = tempfile::tempdir_in(self.base.scratch()).unwrap();
        let mut actors = Vec::new();
        for (number, deeds) in self.cast.iter().enumerate() {
            let rng = Rng::new(self.rng.u64());
            let cache = self.rng.one_in(2).then(|| caches.path().join(number.to_string()));
            let clock = if self.rng.one_in(2) { 86_400 } else { 0 };
            actors.push(Actor {
                number,
                deeds: deeds.clone(),
                base: self.base,
                shared: self.shared.clone(),
                book: self.book.clone(),
                rng,
                clock,
                cache,
                scratch: self.base.scratch().to_owned(),
                memory: None,
                saved: None,
            });
        }
        std::thread::scope(|scope| {
            for actor in actors {
                scope.spawn(move || actor.run());
            }
            if !self.shared.turns().over() {
                println!("{}", self.shared.trace().join("\n"));
                println!("seed {} stands still", self.seed);
                std::process::abort();
            }
        });
        machine::belongs_to(OBSERVER);
        machine::holds(Some(OBSERVER));
        self.shared.settle();
        if self.rng.one_in(3) {
            self.shared.lose_power();
        }
        if let Err(error) = self.look() {
            self.book.wrong(format!("at the end: {error} ({error:?})"));
        }
        machine::belongs_to_nobody();
        machine::holds(None);
        let Run { book, shared, .. } = self;
        Outcome { wrong: book.wrongs(), trace: shared.trace(), digest: shared.digest(), sums: shared.sums() }
    }

    /// All is over: what was promised is there, one prune clears up, and what was promised is still there.
    fn look(&mut self) -> drumlin_engine::Result<()> {
        let repository = self.base.open(Arc::new(self.shared.observer()));
        let cache = no_cache(&repository, self.base.scratch());
        self.book.compare(&repository, &cache, |_| true)?;
        if self.rng.one_in(3) {
            self.is_sound(&repository)?;
        }
        let mut options = prune_options(&mut self.rng, Vec::new());
        (options.max_unused, options.max_repack) = (Unused::Bytes(0), None);
        self.tidy(&repository, &options)?;
        let cache = no_cache(&repository, self.base.scratch());
        let snapshots = self.book.compare(&repository, &cache, |_| true)?;
        self.is_tidy(&self.leftovers(&repository)?, "prune");
        self.is_covered(&repository)?;
        let (needed, there) = (self.book.needed(&snapshots), self.bytes(names::DATA));
        // Padding, a table and a key for each pack.
        if there > needed * 5 / 4 + 64_000 {
            self.book.wrong(format!("{there} bytes of contents are there, {needed} are needed"));
        }
        // As long as index objects name nothing that is there, a prune thinks that the storage is.
        let late = |id| Ok::<_, drumlin_repo::Error>(!Desk::new(&repository).evicted(&[id])?.is_empty());
        let mut doubtful = false;
        for (id, _) in repository.index_objects()? {
            doubtful |= late(id)?;
        }
        if self.rng.one_in(4) && !doubtful {
            let ids: Vec<_> = snapshots.iter().map(|s| s.id).collect();
            ids.iter().for_each(|id| self.book.forgets(*id));
            repository.forget(&ids)?;
            self.tidy(&repository, &options)?;
            let mut left = self.leftovers(&repository)?;
            left.extend(self.shared.objects().into_keys().filter(|name| {
                !["config", "keys/", "decisions/", "history/"].iter().any(|known| name.starts_with(known))
            }));
            self.is_tidy(&left, "prune without a snapshot");
        }
        Ok(())
    }

    /// Two prunes: what a collector that was killed has condemned is removed by the second that comes after it. That
    /// there is something to remove is made sure of, or they would leave everything as it is.
    fn tidy(&self, repository: &Repository, options: &prune::Options) -> drumlin_engine::Result<()> {
        for number in [1, 2] {
            let name = names::pack(PackKind::Data, PackId([number; 16]));
            repository.store().put(&name, b"nothing", Put::Create).map_err(drumlin_repo::Error::from)?;
            let cache = no_cache(repository, self.base.scratch());
            let evict = Desk::new(repository).sessions()?;
            prune(repository, &cache, &prune::Options { evict, ..options.clone() }, &Quiet::default())?;
        }
        Ok(())
    }

    /// Whatever happened, nothing that is there is damaged.
    fn is_sound(&self, repository: &Repository) -> drumlin_engine::Result<()> {
        let cache = no_cache(repository, self.base.scratch());
        let options = check::Options { read: None, workers: 1 };
        let report = check(repository, &cache, options, &Quiet::default())?;
        if !report.findings.is_empty() {
            self.book.wrong(format!("a check tells of damage: {:?}", report.findings));
        }
        Ok(())
    }

    /// If there are bands, they cover all packs, and nothing is there that belongs to none.
    fn is_covered(&self, repository: &Repository) -> drumlin_engine::Result<()> {
        if self.bytes(names::PARITY) == 0 {
            return Ok(());
        }
        let options = parity::Options {
            host: "host".into(),
            shape: None,
            spoiled: HashSet::new(),
            evict: Vec::new(),
            evict_after: Duration::from_secs(1 << 40),
            workers: 1,
        };
        let cache = no_cache(repository, self.base.scratch());
        let report = parity::plan(repository, &cache, &options, &Quiet::default())?;
        if report.uncovered.packs + report.lost + report.made + report.removed.objects > 0 {
            self.book.wrong(format!("parity across packs is not as it should be: {report:?}"));
        }
        Ok(())
    }

    fn is_tidy(&self, left: &[String], after: &str) {
        if !left.is_empty() {
            self.book.wrong(format!("{after} leaves {}", left.join(", ")));
        }
    }

    fn bytes(&self, folder: &str) -> u64 {
        self.shared.objects().iter().filter(|(n, _)| n.starts_with(folder)).map(|(_, o)| o.len() as u64).sum()
    }

    /// Sessions, plans, forgotten snapshots, packs that no index object names, index objects that name packs that are
    /// not there.
    fn leftovers(&self, repository: &Repository) -> drumlin_engine::Result<Vec<String>> {
        let objects = self.shared.objects();
        let folder = |name: &str| name.split('/').next().unwrap_or_default().to_owned();
        let mut left: Vec<String> = objects
            .keys()
            .filter(|name| match name.strip_prefix("forgotten/") {
                // What was forgotten and lost with the power what said so is there, and the copy does no harm.
                Some(id) => !objects.contains_key(&format!("snapshots/{id}")),
                None => [names::SESSIONS, names::PLANS].contains(&&*folder(name)),
            })
            .cloned()
            .collect();
        let mut named = Vec::new();
        for (id, _) in repository.index_objects()? {
            // Who wakes up after his eviction writes what he will. It is no harm to anybody.
            let late = !Desk::new(repository).evicted(&[id])?.is_empty();
            for pack in repository.index_hooks(id)?.unwrap_or_default().1 {
                let name = names::pack(pack.kind, pack.pack);
                if !late && !objects.contains_key(&name) {
                    left.push(format!("{} that names {name}", names::index(id)));
                }
                named.push(name);
            }
        }
        let packs = objects.keys().filter(|name| [names::DATA, names::TREE].contains(&&*folder(name)));
        left.extend(packs.filter(|name| !named.contains(name)).cloned());
        Ok(left)
    }
}
