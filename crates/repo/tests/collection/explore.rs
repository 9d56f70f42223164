//! Every order of the steps of some actors. An actor is ordinary code that asks a [`Script`] for each step's answer; it
//! is run again from its start with the answers that it has had, until it asks for one more. So a state is the world
//! and what each actor has been told, and equal states are looked at once. An actor that crashes is one that takes no
//! step any more: every such ending is among the states.

use crate::world::{Answer, Step, World};
use drumlin_testkit::Rng;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

/// The code has come to a step that has no answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause;

/// What an actor has been told so far, and what it asks next.
pub struct Script<'a> {
    pub atomic: bool,
    pub coarse: bool,
    pub orphans: bool,
    pub late: bool,
    answers: &'a [Answer],
    at: Cell<usize>,
    asked: RefCell<Option<Step>>,
}

impl Script<'_> {
    pub fn ask(&self, step: Step) -> Result<Answer, Pause> {
        let at = self.at.get();
        match self.answers.get(at) {
            Some(answer) => {
                self.at.set(at + 1);
                Ok(answer.clone())
            }
            None => {
                // Some go on after a failure: what they ask then isn't asked yet.
                self.asked.borrow_mut().get_or_insert(step);
                Err(Pause)
            }
        }
    }
}

/// What an actor is, and what it says at its end.
pub type Actor<'a> = (&'static str, Box<dyn Fn(&Script) -> Result<String, Pause> + 'a>);

#[derive(Clone)]
enum Progress {
    /// What it was told, a hash of that, and what it asks next.
    Asks { answers: Rc<Vec<Answer>>, hash: u64, step: Step },
    /// What it said at its end.
    Ended(Rc<str>),
}

impl Hash for Progress {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Progress::Asks { hash, .. } => hash.hash(state),
            Progress::Ended(word) => word.hash(state),
        }
    }
}

impl Progress {
    fn said(&self) -> Option<&str> {
        match self {
            Progress::Ended(word) => Some(word),
            Progress::Asks { .. } => None,
        }
    }

    /// Let an actor go on until it asks for another answer, or ends.
    fn of(actor: &Actor, world: &World, answers: Vec<Answer>, hash: u64) -> Self {
        let (at, asked) = (Cell::new(0), RefCell::default());
        let World { atomic, coarse, orphans, late, .. } = *world;
        let script = Script { atomic, coarse, orphans, late, answers: &answers, at, asked };
        match (actor.1)(&script) {
            Ok(word) => Progress::Ended(word.as_str().into()),
            Err(Pause) => {
                let step = script.asked.take().expect("it paused at a step");
                Progress::Asks { answers: Rc::new(answers), hash, step }
            }
        }
    }
}

/// What was found.
#[derive(Debug, Default)]
pub struct Explored {
    pub states: usize,
    /// The first state that is wrong, and the way there.
    pub wrong: Option<String>,
    /// Worlds in which all actors had ended, and what they had said.
    pub ends: Vec<(World, Vec<String>)>,
}

/// Try every order. `check` looks at each state's world and at what those have said that have ended.
pub fn explore(
    start: World,
    actors: &[Actor],
    check: impl Fn(&World, &[Option<&str>]) -> Result<(), String>,
) -> Explored {
    let mut explored = Explored::default();
    let mut seen = HashSet::new();
    let progress: Vec<_> = actors.iter().map(|actor| Progress::of(actor, &start, Vec::new(), 0)).collect();
    let mut open = vec![(start, progress, None)];
    while let Some((world, progress, way)) = open.pop() {
        let mut hasher = DefaultHasher::new();
        (&world, &progress).hash(&mut hasher);
        if !seen.insert(hasher.finish()) {
            continue;
        }
        explored.states += 1;
        let said: Vec<Option<&str>> = progress.iter().map(Progress::said).collect();
        if let Err(wrong) = check(&world, &said) {
            explored.wrong = Some(format!("{wrong}\n{}\n{world:#?}", path(&way)));
            return explored;
        }
        if said.iter().all(Option::is_some) {
            explored.ends.push((world.clone(), said.iter().flatten().map(|w| w.to_string()).collect()));
        }
        // A pack that no index names is nobody else's business, where nobody looks for such: that step need not be
        // tried in every order.
        let alone = |p: &Progress| !world.orphans && matches!(p, Progress::Asks { step: Step::PutPack(..), .. });
        let alone = progress.iter().position(alone);
        for (number, actor) in actors.iter().enumerate() {
            let Progress::Asks { answers, hash, step } = &progress[number] else { continue };
            if alone.is_some_and(|only| only != number) {
                continue;
            }
            let mut world = world.clone();
            let answer = world.apply(step.clone());
            let mut hasher = DefaultHasher::new();
            (hash, &answer).hash(&mut hasher);
            let answers = answers.iter().cloned().chain([answer]).collect();
            let mut after = progress.clone();
            after[number] = Progress::of(actor, &world, answers, hasher.finish());
            let way = Way { actor: (actor.0, number), step: step.clone(), before: way.clone() };
            open.push((world, after, Some(Rc::new(way))));
        }
    }
    explored
}

/// Try some orders by chance, where there are too many to try all: in each walk an actor goes on for a while, a shorter
/// or a longer one, until another's turn comes. The same seed takes the same ways.
pub fn wander(
    start: &World,
    actors: &[Actor],
    (seed, walks): (u64, usize),
    check: impl Fn(&World, &[Option<&str>]) -> Result<(), String>,
) -> Explored {
    let mut explored = Explored::default();
    let mut rng = Rng::new(seed);
    for _ in 0..walks {
        let stays = [0, 1, 4, 16][rng.below(4)];
        let mut world = start.clone();
        let mut progress: Vec<_> = actors.iter().map(|actor| Progress::of(actor, &world, Vec::new(), 0)).collect();
        let (mut way, mut at) = (None, 0);
        loop {
            explored.states += 1;
            let said: Vec<Option<&str>> = progress.iter().map(Progress::said).collect();
            if let Err(wrong) = check(&world, &said) {
                explored.wrong = Some(format!("seed {seed}: {wrong}\n{}\n{world:#?}", path(&way)));
                return explored;
            }
            let under_way: Vec<usize> = (0..actors.len()).filter(|number| said[*number].is_none()).collect();
            if under_way.is_empty() {
                explored.ends.push((world, said.iter().flatten().map(|w| w.to_string()).collect()));
                break;
            }
            if !under_way.contains(&at) || rng.below(1 + stays) == 0 {
                at = under_way[rng.below(under_way.len())];
            }
            let Progress::Asks { answers, step, .. } = &progress[at] else { continue };
            let answer = world.apply(step.clone());
            way = Some(Rc::new(Way { actor: (actors[at].0, at), step: step.clone(), before: way }));
            let answers = answers.iter().cloned().chain([answer]).collect();
            progress[at] = Progress::of(&actors[at], &world, answers, 0);
        }
    }
    explored
}

struct Way {
    actor: (&'static str, usize),
    step: Step,
    before: Option<Rc<Way>>,
}

fn path(mut way: &Option<Rc<Way>>) -> String {
    let mut steps = Vec::new();
    while let Some(at) = way {
        steps.push(format!("{} {}: {:?}", at.actor.0, at.actor.1, at.step));
        way = &at.before;
    }
    steps.reverse();
    steps.join("\n")
}
