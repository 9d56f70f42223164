//! The storage: the worst that `drumlin_store::Store` allows. What was not synced may be lost in any part, a call may
//! fail with its effect done, not done, or done later, a listing may miss what is put while it runs.
//!
//! What readers see and what a loss of power would leave are kept apart. A change belongs to the process that made it,
//! and is durable once that process has synced; before, it becomes durable by itself, or is lost with the process, or
//! with the power.

use crate::machine;
use crate::sums::Sums;
use crate::turns::Turns;
use drumlin_store::{Action, Error, Kind, Listed, Look, Op, Put, Result, Store, Upload, name};
use drumlin_testkit::Rng;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Objects by name.
pub type Objects = BTreeMap<String, Arc<Vec<u8>>>;

/// A process: somebody who is started, has a storage at hand, and may be killed.
pub type Pid = usize;
/// Stands for a process that will sync nothing any more.
const NOBODY: Pid = usize::MAX;

/// What may go wrong. Once in so many; 0: never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Troubles {
    /// Calls fail, and their process lives.
    pub failing: usize,
    /// A process is killed at a call.
    pub killed: usize,
    /// A process stands still for a long time.
    pub suspended: usize,
    /// The power fails: once, at about this step.
    pub power: u64,
    /// What failed may take effect later, when its process has long gone on.
    pub late: bool,
    /// Nobody creates a name alone: it is looked for, and then written, whatever has come meanwhile.
    pub overwrites: bool,
    /// What is looked at behind a put is seen there, and given later.
    pub looks_behind: bool,
}

/// A change that may yet come.
#[derive(Clone)]
enum Change {
    Put(String, Arc<Vec<u8>>, Put),
    Finish(String, Arc<Vec<u8>>),
    Delete(String),
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Change::Put(name, ..) => write!(f, "put {name}"),
            Change::Finish(name, _) => write!(f, "finish {name}"),
            Change::Delete(name) => write!(f, "delete {name}"),
        }
    }
}

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Done,
    /// It fails, and did nothing.
    Undone,
    /// It fails, and was done.
    Unanswered,
    /// It fails, and is done after so many steps.
    Late(u64),
}

struct Process {
    actor: usize,
    alive: bool,
    sessions: Vec<String>,
}

/// The storage and whoever is connected to it.
pub struct World {
    rng: Rng,
    troubles: Troubles,
    live: Objects,
    durable: Objects,
    /// Names whose live state is not durable, and the processes that changed them since it was.
    pending: BTreeMap<String, BTreeSet<Pid>>,
    to_come: Vec<(u64, Pid, Change)>,
    processes: Vec<Process>,
    step: u64,
    power_lost: bool,
    /// Every call, if it is to be told.
    trace: Option<Vec<String>>,
    /// A digest of every call.
    digest: u64,
    sums: Sums,
}

/// A world, shared.
#[derive(Clone)]
pub struct Shared {
    world: Arc<Mutex<World>>,
    turns: Turns,
}

impl Shared {
    /// A world in which these objects are durable.
    pub fn new(objects: Objects, turns: Turns, troubles: Troubles, rng: Rng, trace: bool) -> Self {
        let world = World {
            rng,
            troubles,
            live: objects.clone(),
            durable: objects,
            pending: BTreeMap::new(),
            to_come: Vec::new(),
            processes: Vec::new(),
            step: 0,
            power_lost: false,
            trace: trace.then(Vec::new),
            digest: 0,
            sums: Sums::default(),
        };
        Shared { world: Arc::new(Mutex::new(world)), turns }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turns.
    pub fn turns(&self) -> &Turns {
        &self.turns
    }

    /// A new process of an actor, and its storage. Nothing fails, and nobody else gets a turn, until it is told to go.
    pub fn process(&self, actor: usize) -> Client {
        let mut world = self.world();
        world.processes.push(Process { actor, alive: true, sessions: Vec::new() });
        let (pid, quiet) = (world.processes.len() - 1, Arc::new(AtomicBool::new(true)));
        Client { shared: self.clone(), pid, actor, quiet, calls: Arc::default(), behind: Arc::default() }
    }

    /// What observers see: no call of theirs fails, or gives anybody else a turn.
    pub fn observer(&self) -> Client {
        self.process(usize::MAX)
    }

    /// Everything that is there.
    pub fn objects(&self) -> Objects {
        self.world().live.clone()
    }

    /// Nobody does anything any more: what was to come comes, or does not.
    pub fn settle(&self) {
        let mut world = self.world();
        let to_come = std::mem::take(&mut world.to_come);
        for (_, pid, change) in to_come {
            if world.rng.one_in(2) {
                world.sums.add("late effects", 1);
                world.apply(pid, change, false);
            }
        }
    }

    /// The power fails: everybody is killed, and of what is not durable some is lost.
    pub fn lose_power(&self) {
        self.world().lose_power();
    }

    /// The sessions of processes that are gone.
    pub fn dead_sessions(&self) -> Vec<String> {
        let world = self.world();
        world.processes.iter().filter(|p| !p.alive).flat_map(|p| p.sessions.iter().cloned()).collect()
    }

    /// A word for the trace.
    pub fn note(&self, actor: usize, what: impl FnOnce() -> String) {
        self.world().tell(actor, what);
    }

    /// Every call so far, if they were to be told.
    pub fn trace(&self) -> Vec<String> {
        self.world().trace.clone().unwrap_or_default()
    }

    /// A digest of every call so far.
    pub fn digest(&self) -> u64 {
        self.world().digest
    }

    /// Something happened so often.
    pub fn count(&self, event: &str, times: u64) {
        self.world().sums.add(event, times);
    }

    /// What has happened so far.
    pub fn sums(&self) -> Sums {
        self.world().sums.clone()
    }
}

impl World {
    fn tell(&mut self, actor: usize, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:6} {}{}", self.step, "                ".repeat(actor.min(8)), what()));
        }
    }

    fn sum_up(&mut self, actor: usize, op: Op, name: &str, fine: bool) {
        for byte in name.bytes().chain([op as u8, actor as u8, u8::from(fine)]) {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Time passes.
    fn pass(&mut self, step: u64) {
        self.step = step;
        let (now, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.to_come).into_iter().partition(|(due, ..)| *due <= step);
        self.to_come = later;
        for (_, pid, change) in now {
            self.tell(0, || format!("what failed before takes effect: {change}"));
            self.sums.add("late effects", 1);
            self.apply(pid, change, false);
        }
        if !self.pending.is_empty() && self.rng.one_in(50) {
            // The system writes back what it likes.
            let names: Vec<String> = self.pending.keys().cloned().collect();
            if let Some(name) = self.rng.pick(&names).cloned() {
                self.make_durable(&name);
            }
        }
        if self.troubles.power > 0 && step >= self.troubles.power && !self.power_lost {
            self.power_lost = true;
            self.lose_power();
        }
    }

    fn lose_power(&mut self) {
        self.tell(0, || "the power fails".into());
        self.sums.add("losses of power", 1);
        self.to_come.clear();
        self.processes.iter_mut().for_each(|p| p.alive = false);
        let names: Vec<String> = self.pending.keys().cloned().collect();
        for name in names {
            if self.rng.one_in(2) { self.make_durable(&name) } else { self.undo(&name) }
        }
    }

    fn make_durable(&mut self, name: &str) {
        self.pending.remove(name);
        match self.live.get(name) {
            Some(object) => self.durable.insert(name.to_owned(), object.clone()),
            None => self.durable.remove(name),
        };
    }

    fn undo(&mut self, name: &str) {
        self.tell(0, || format!("the last change of {name} is lost"));
        self.sums.add("changes that were lost", 1);
        self.pending.remove(name);
        match self.durable.get(name) {
            Some(object) => self.live.insert(name.to_owned(), object.clone()),
            None => self.live.remove(name),
        };
    }

    /// A process is killed: of what it changed and did not sync some is lost at once, some stays in doubt.
    fn kill(&mut self, pid: Pid) {
        self.processes[pid].alive = false;
        let actor = self.processes[pid].actor;
        self.tell(actor, || "is killed".into());
        self.sums.add("processes killed", 1);
        let own: Vec<String> =
            self.pending.iter().filter(|(_, by)| by.len() == 1 && by.contains(&pid)).map(|(n, _)| n.clone()).collect();
        for name in own {
            match self.rng.below(3) {
                0 => self.make_durable(&name),
                1 => self.undo(&name),
                _ => {}
            }
        }
    }

    /// `false`: what is to be created is there already. What was not `answered` is not durable either.
    fn apply(&mut self, pid: Pid, change: Change, answered: bool) -> bool {
        match change {
            Change::Put(name, _, Put::Create) | Change::Finish(name, _) if self.live.contains_key(&name) => false,
            Change::Put(name, object, _) => {
                self.live.insert(name.clone(), object);
                if answered {
                    self.make_durable(&name);
                } else {
                    self.pending.entry(name).or_default().insert(NOBODY);
                }
                true
            }
            Change::Finish(name, object) => {
                self.live.insert(name.clone(), object);
                self.pending.entry(name).or_default().insert(pid);
                true
            }
            Change::Delete(name) => {
                self.live.remove(&name);
                // Whoever finds it gone already makes its removal durable like his own.
                if self.durable.contains_key(&name) {
                    self.pending.entry(name).or_default().insert(pid);
                } else {
                    self.pending.remove(&name);
                }
                true
            }
        }
    }

    fn fate(&mut self, pid: Pid) -> Fate {
        let often = |rng: &mut Rng, n: usize| n > 0 && rng.one_in(n);
        let killed = often(&mut self.rng, self.troubles.killed);
        if !killed && !often(&mut self.rng, self.troubles.failing) {
            return Fate::Done;
        }
        let fate = match self.rng.below(if self.troubles.late { 4 } else { 3 }) {
            0 | 1 => Fate::Undone,
            2 => Fate::Unanswered,
            _ => Fate::Late(self.step + 20 + self.rng.below(600) as u64),
        };
        if killed {
            self.kill(pid);
        }
        fate
    }
}

/// A process's storage.
#[derive(Clone)]
pub struct Client {
    shared: Shared,
    pid: Pid,
    actor: usize,
    /// Nobody else gets a turn, and nothing fails.
    quiet: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
    /// What was seen behind the last put, and wasn't given yet.
    behind: Arc<Mutex<Behind>>,
}

/// Listings and lengths.
#[derive(Default)]
struct Behind {
    listings: HashMap<String, Vec<Listed>>,
    lengths: HashMap<String, Option<u64>>,
}

impl Client {
    /// Whether it lives.
    pub fn alive(&self) -> bool {
        self.shared.world().processes[self.pid].alive
    }

    /// From now on its calls are like anybody's.
    pub fn go(&self) {
        self.quiet.store(false, Ordering::SeqCst);
    }

    /// How many calls it has made.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Whether somebody has decided on its last session: it was evicted, or is about to be.
    pub fn was_evicted(&self) -> bool {
        let world = self.shared.world();
        let Some(last) = world.processes[self.pid].sessions.last() else { return false };
        let decided = format!("decisions/{last}");
        let mut flags = world.live.range(decided.clone()..).take_while(|(name, _)| name.starts_with(&decided));
        flags.any(|(name, _)| !name.ends_with(".commit"))
    }

    fn behind(&self) -> MutexGuard<'_, Behind> {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Look at these, one after the other, each a call of its own, and keep what was seen.
    fn look(&self, looks: &[Look]) -> Result<()> {
        for look in looks {
            match *look {
                Look::Empty(folder) | Look::Listing(folder) | Look::InOrder(folder) => {
                    let mut objects = Vec::new();
                    self.list(folder, &mut |listed| objects.push(listed))?;
                    let holds_more = matches!(look, Look::Empty(_)) && !objects.is_empty();
                    self.behind().listings.insert(folder.to_owned(), objects);
                    if holds_more {
                        break;
                    }
                }
                Look::Length(name) => {
                    let len = self.len(name)?;
                    self.behind().lengths.insert(name.to_owned(), len);
                }
            }
        }
        Ok(())
    }

    fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::SeqCst)
    }

    /// Wait for one's turn, and see what becomes of a call.
    fn begin(&self, op: Op, name: &str, passes: bool) -> Result<(MutexGuard<'_, World>, Fate)> {
        if self.is_quiet() {
            return Ok((self.shared.world(), Fate::Done));
        }
        self.calls.fetch_add(1, Ordering::SeqCst);
        if passes {
            self.shared.turns.pass(self.actor);
        } else {
            self.shared.turns.stay(self.actor);
        }
        let step = self.shared.turns.steps();
        let mut world = self.shared.world();
        world.pass(step);
        if !world.processes[self.pid].alive {
            return Err(failed(Action::Open, name, "the process is dead"));
        }
        let fate = world.fate(self.pid);
        if passes && world.troubles.suspended > 0 {
            let often = world.troubles.suspended;
            if world.rng.one_in(often) {
                let steps = 50 + world.rng.below(1500) as u64;
                world.tell(self.actor, || format!("stands still for {steps} steps"));
                world.sums.add("processes that stood still", 1);
                self.shared.turns.sleep(self.actor, steps);
            }
        }
        world.sum_up(self.actor, op, name, fate == Fate::Done);
        match fate {
            Fate::Done => {}
            Fate::Unanswered => world.sums.add("calls without an answer", 1),
            Fate::Undone | Fate::Late(_) => world.sums.add("calls that failed", 1),
        }
        world.tell(self.actor, || {
            let how = match fate {
                Fate::Done => String::new(),
                Fate::Undone => " fails".into(),
                Fate::Unanswered => " fails, and takes effect".into(),
                Fate::Late(step) => format!(" fails, and takes effect at {step}"),
            };
            format!("{op:?} {name}{how}")
        });
        Ok((world, fate))
    }

    fn read<T>(&self, op: Op, name: &str, read: impl FnOnce(&World) -> Result<T>) -> Result<T> {
        let (world, fate) = self.begin(op, name, true)?;
        if fate == Fate::Done { read(&world) } else { Err(failed(Action::Read, name, "the line is broken")) }
    }

    /// How a name is created: alone, or by a look and, a call later, a write that replaces what has come since.
    fn looks_first(&self, name: &str, how: Put) -> Result<Put> {
        if how != Put::Create || !self.shared.world().troubles.overwrites {
            return Ok(how);
        }
        match self.len(name)? {
            Some(_) => Err(Error::because(Kind::Exists, Action::Write, name, LOCATION, "it is there already")),
            None => Ok(Put::Replace),
        }
    }

    fn change(&self, op: Op, name: &str, change: Change) -> Result<()> {
        *self.behind() = Behind::default();
        let (mut world, fate) = self.begin(op, name, true)?;
        let action = if op == Op::Delete { Action::Delete } else { Action::Write };
        match fate {
            Fate::Done => {
                if !world.apply(self.pid, change, true) {
                    world.tell(self.actor, || format!("  {name} is there already"));
                    return Err(Error::because(Kind::Exists, action, name, LOCATION, "it is there already"));
                }
                return Ok(());
            }
            Fate::Undone => {}
            Fate::Unanswered => {
                world.apply(self.pid, change, false);
            }
            Fate::Late(step) => world.to_come.push((step, self.pid, change)),
        }
        Err(failed(action, name, "the line is broken"))
    }
}

const LOCATION: &str = "the simulated storage";

fn failed(action: Action, name: &str, why: &str) -> Error {
    Error::because(Kind::Transient, action, name, LOCATION, why)
}

fn missing(name: &str) -> Error {
    Error::because(Kind::Missing, Action::Read, name, LOCATION, "there is no such object")
}

impl Store for Client {
    fn location(&self) -> String {
        LOCATION.into()
    }

    fn creates_atomically(&self) -> Result<bool> {
        Ok(!self.shared.world().troubles.overwrites)
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
        name::check_prefix(Action::List, prefix, LOCATION)?;
        let seen = self.behind().listings.remove(prefix);
        if let Some(seen) = seen {
            seen.into_iter().for_each(each);
            return Ok(());
        }
        let below = |objects: &Objects| -> BTreeMap<String, u64> {
            let all = objects.range(prefix.to_owned()..).take_while(|(name, _)| name.starts_with(prefix));
            all.filter(|(n, _)| name::is_below(n, prefix)).map(|(n, o)| (n.clone(), o.len() as u64)).collect()
        };
        let mut found = {
            let (world, fate) = self.begin(Op::List, prefix, true)?;
            if fate != Fate::Done {
                return Err(failed(Action::List, prefix, "the line is broken"));
            }
            below(&world.live)
        };
        if !self.is_quiet() {
            // It takes a while, in which things come and go: of these it has some.
            self.shared.turns.pass(self.actor);
            let mut world = self.shared.world();
            let now = below(&world.live);
            found.retain(|name, _| now.contains_key(name) || world.rng.one_in(2));
            for (name, len) in now {
                if !found.contains_key(&name) && world.rng.one_in(2) {
                    found.insert(name, len);
                }
            }
        }
        let mut found: Vec<(String, u64)> = found.into_iter().collect();
        if !self.is_quiet() {
            let mut world = self.shared.world();
            for at in (1..found.len()).rev() {
                found.swap(at, world.rng.below(at + 1));
            }
        }
        found.into_iter().for_each(|(name, len)| each(Listed { name, len }));
        Ok(())
    }

    fn len(&self, name: &str) -> Result<Option<u64>> {
        let seen = self.behind().lengths.remove(name);
        if let Some(seen) = seen {
            return Ok(seen);
        }
        self.read(Op::Len, name, |world| Ok(world.live.get(name).map(|object| object.len() as u64)))
    }

    fn get(&self, name: &str) -> Result<Vec<u8>> {
        self.read(Op::Get, name, |world| world.live.get(name).map(|o| o.to_vec()).ok_or_else(|| missing(name)))
    }

    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read(Op::ReadAt, name, |world| {
            let object = world.live.get(name).ok_or_else(|| missing(name))?;
            let (start, end) = (offset as usize, offset as usize + buf.len());
            let truncated = || Error::truncated(Action::Read, name, LOCATION, end as u64, object.len() as u64);
            buf.copy_from_slice(object.get(start..end).ok_or_else(truncated)?);
            Ok(())
        })
    }

    fn put(&self, name: &str, bytes: &[u8], how: Put) -> Result<()> {
        name::check(Action::Write, name, LOCATION)?;
        if name.starts_with("sessions/")
            && let Some(id) = name.split('/').nth(1)
        {
            self.shared.world().processes[self.pid].sessions.push(id.into());
            machine::begins_session(self.actor);
        }
        let how = self.looks_first(name, how)?;
        self.change(Op::Put, name, Change::Put(name.into(), Arc::new(bytes.to_vec()), how))
    }

    fn put_and_look(&self, name: &str, bytes: &[u8], looks: &[Look<'_>]) -> Result<()> {
        self.put(name, bytes, Put::Create)?;
        if self.shared.world().troubles.looks_behind {
            // What can't be seen is asked for again.
            let _ = self.look(looks);
        }
        Ok(())
    }

    fn upload(&self, name: &str, _len_hint: u64) -> Result<Box<dyn Upload>> {
        name::check(Action::Write, name, LOCATION)?;
        let fate = self.begin(Op::Upload, name, true)?.1;
        if fate != Fate::Done {
            return Err(failed(Action::Write, name, "the line is broken"));
        }
        Ok(Box::new(Uploading { process: self.clone(), name: name.into(), bytes: Vec::new() }))
    }

    fn sync(&self) -> Result<()> {
        let (mut world, fate) = self.begin(Op::Sync, "", true)?;
        if fate != Fate::Done {
            return Err(failed(Action::Persist, "", "the line is broken"));
        }
        let own: Vec<String> =
            world.pending.iter().filter(|(_, by)| by.contains(&self.pid)).map(|(n, _)| n.clone()).collect();
        own.iter().for_each(|name| world.make_durable(name));
        Ok(())
    }

    fn delete(&self, name: &str) -> Result<()> {
        name::check(Action::Delete, name, LOCATION)?;
        self.change(Op::Delete, name, Change::Delete(name.into()))
    }
}

struct Uploading {
    process: Client,
    name: String,
    bytes: Vec<u8>,
}

impl Upload for Uploading {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        // Nobody sees it yet, so nobody else need have a turn.
        let fate = self.process.begin(Op::Write, &self.name, false)?.1;
        if fate != Fate::Done {
            return Err(failed(Action::Write, &self.name, "the line is broken"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let Uploading { process, name, bytes } = *self;
        process.change(Op::Finish, &name, Change::Finish(name.clone(), Arc::new(bytes)))
    }
}
