//! Whose turn it is: actors are threads, and only the threads of one of them run at any time. Each call to the storage is a
//! point at which the turn may go to another, as the seed says.
//!
//! An operation has threads of its own. They run while their actor has the turn, and with one worker each hardly ever two of
//! them at once, so that a seed gives the same run every time; `tests` hold it to that.

use crate::machine;
use drumlin_testkit::Rng;
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
    /// Threads that wait for their actor's turn.
    parked: Vec<usize>,
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
            parked: vec![0; actors],
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
        self.wait(state, actor);
    }

    /// A call is made: it may be somebody else's turn first.
    pub fn pass(&self, actor: usize) {
        machine::belongs_to(actor);
        let mut state = self.state();
        state.steps += 1;
        machine::tick();
        assert!(state.steps < STEPS_MAX, "this goes on for ever");
        if state.turn == Some(actor) {
            let switch = state.switch;
            if state.asleep[actor] > state.steps || state.rng.one_in(switch) {
                state.turn = None;
            }
        }
        self.wait(state, actor);
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
        let waiting: Vec<usize> = (0..state.parked.len()).filter(|a| state.parked[*a] > 0).collect();
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

    fn wait(&self, mut state: MutexGuard<State>, actor: usize) {
        state.parked[actor] += 1;
        while state.turn != Some(actor) {
            if state.turn.is_none() && state.entered == state.parked.len() {
                self.hand_over(&mut state);
                continue;
            }
            state = self.0.wake[actor].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.parked[actor] -= 1;
    }
}
