//! Whose turn it is: actors are threads, and only the threads of one of them run at any time. Each call to the storage
//! is a point at which the turn may go to another, as the seed says.
//!
//! An operation has threads of its own, and which of them comes first to a call is for the system to say. So nobody
//! goes on before all others wait for something ([`quiet`]); then, of the actor's threads that are at a call, the one
//! whose name comes first goes on. A seed gives the same run every time; `a_seed_is_the_same_run_every_time` holds it
//! to that.

use crate::machine;
use drumlin_testkit::Rng;
use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A run that takes more steps than this goes in circles.
const STEPS_MAX: u64 = 400_000;
/// Nothing that is simulated takes that long.
const STUCK: Duration = Duration::from_secs(120);

struct State {
    rng: Rng,
    /// The turn goes to another once in so many calls.
    switch: usize,
    turn: Option<usize>,
    /// Threads that wait for their actor's turn, or for each other: by their names and their numbers in the system.
    parked: Vec<BTreeSet<(String, u32)>>,
    entered: usize,
    left: usize,
    /// Not before this step, as long as there are others.
    asleep: Vec<u64>,
    steps: u64,
}

struct Shared {
    state: Mutex<State>,
    wake: Vec<Condvar>,
    over: Condvar,
}

/// The turns of some actors.
#[derive(Clone)]
pub struct Turns(Arc<Shared>);

impl Turns {
    /// Turns of so many actors.
    pub fn new(actors: usize, switch: usize, rng: Rng) -> Self {
        let state = State {
            rng,
            switch,
            turn: None,
            parked: vec![BTreeSet::new(); actors],
            entered: 0,
            left: 0,
            asleep: vec![0; actors],
            steps: 0,
        };
        let wake = (0..actors).map(|_| Condvar::new()).collect();
        Turns(Arc::new(Shared { state: Mutex::new(state), wake, over: Condvar::new() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first thing that an actor does: wait until all are there, and then for its turn.
    pub fn enter(&self, actor: usize) {
        machine::belongs_to(actor);
        let mut state = self.state();
        state.entered += 1;
        drop(self.wait(state, actor));
    }

    /// A call is made: it may be somebody else's turn first.
    pub fn pass(&self, actor: usize) {
        machine::belongs_to(actor);
        let mut state = self.wait(self.state(), actor);
        state.steps += 1;
        machine::tick();
        assert!(state.steps < STEPS_MAX, "this goes on for ever");
        let switch = state.switch;
        if state.asleep[actor] > state.steps || state.rng.one_in(switch) {
            state.turn = None;
            drop(self.wait(state, actor));
        }
    }

    /// A call is made that gives nobody else a turn.
    pub fn stay(&self, actor: usize) {
        machine::belongs_to(actor);
        drop(self.wait(self.state(), actor));
    }

    /// An actor gets no turn for so many steps, unless all others wait for it.
    pub fn sleep(&self, actor: usize, steps: u64) {
        let mut state = self.state();
        state.asleep[actor] = state.steps + steps;
    }

    /// The last thing that an actor does.
    pub fn leave(&self, actor: usize) {
        machine::belongs_to_nobody();
        let mut state = self.state();
        state.left += 1;
        if state.turn == Some(actor) {
            self.hand_over(&mut state);
        }
        if state.left == state.parked.len() {
            machine::holds(None);
            self.0.over.notify_all();
        }
    }

    /// How many calls there were.
    pub fn steps(&self) -> u64 {
        self.state().steps
    }

    /// Wait until all have left. `false`: they don't.
    pub fn over(&self) -> bool {
        let going_on = |state: &mut State| state.left < state.parked.len();
        let waited = self.0.over.wait_timeout_while(self.state(), STUCK, going_on);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// To one of those who wait.
    fn hand_over(&self, state: &mut State) {
        let waiting: Vec<usize> = (0..state.parked.len()).filter(|a| !state.parked[*a].is_empty()).collect();
        let awake: Vec<usize> = waiting.iter().copied().filter(|a| state.asleep[*a] <= state.steps).collect();
        let next = match state.rng.pick(&awake) {
            Some(next) => Some(*next),
            None => waiting.into_iter().min_by_key(|a| state.asleep[*a]),
        };
        state.turn = next;
        machine::holds(next);
        if let Some(next) = next {
            self.0.wake[next].notify_all();
        }
    }

    /// Wait until it is the actor's turn, and among its threads this one's.
    fn wait<'a>(&'a self, mut state: MutexGuard<'a, State>, actor: usize) -> MutexGuard<'a, State> {
        let me = (std::thread::current().name().unwrap_or_default().to_owned(), own_number());
        state.parked[actor].insert(me.clone());
        loop {
            let mine = state.turn == Some(actor) && state.parked[actor].first() == Some(&me);
            let nobodys = state.turn.is_none() && state.entered == state.parked.len();
            if !mine && !nobodys {
                state = self.0.wake[actor].wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            if !quiet(&state.parked) {
                let again = self.0.wake[actor].wait_timeout(state, LOOK_AGAIN);
                state = again.unwrap_or_else(PoisonError::into_inner).0;
            } else if mine {
                break;
            } else {
                self.hand_over(&mut state);
            }
        }
        state.parked[actor].remove(&me);
        // Whoever comes next looks for himself when this one has come to rest.
        self.0.wake[actor].notify_all();
        state
    }
}

/// How long to wait for threads that are at something.
const LOOK_AGAIN: Duration = Duration::from_micros(30);

/// This thread's number in the system.
fn own_number() -> u32 {
    thread_local! {
        static NUMBER: u32 = std::fs::read_link("/proc/thread-self").ok().and_then(|to| to.file_name()?.to_str()?.parse().ok()).unwrap();
    }
    NUMBER.with(|number| *number)
}

/// Whether every thread of this process but this one waits: for its turn, or for another thread.
fn quiet(parked: &[BTreeSet<(String, u32)>]) -> bool {
    let me = own_number();
    let waits = |number: u32| {
        // One that has ended since doesn't do anything either.
        let Ok(stat) = std::fs::read_to_string(format!("/proc/self/task/{number}/stat")) else { return true };
        stat.rsplit(") ").next().is_some_and(|rest| !rest.starts_with(['R', 'D']))
    };
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let numbers = threads.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let at_work = |number: &u32| *number != me && !parked.iter().flatten().any(|(_, known)| known == number);
    numbers.filter(at_work).all(waits)
}
