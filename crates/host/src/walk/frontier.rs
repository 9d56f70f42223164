//! All that has been found and not yet handed out, in tree order.
//!
//! One list. Its items are finished listings, work in some worker's hands, and work that waits. Workers take the first
//! waiting item, put what they found in the place of it, and so the order of the list is always that of the tree; the
//! consumer takes finished listings off the front. Finished neighbours are joined, so the list stays as short as there
//! are workers and levels, and looking for the first waiting item is a few steps.
//!
//! Memory is bounded by admission: with more than `budget` bytes of finished listings, only work within `budget / 8` of
//! the consumer is given out; work at the very front always is, so the walk can't lock up.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use super::listing::Run;
use super::pending::{Flat, Group, Kids, Pending, Span, Tail};

const NIL: u32 = u32::MAX;

enum Slot {
    Free,
    Ready { runs: VecDeque<Run>, bytes: usize },
    Busy,
    Waiting(Pending),
}

struct Node {
    prev: u32,
    next: u32,
    slot: Slot,
}

/// What a worker brings back.
#[derive(Default)]
pub(crate) struct Fragment {
    /// Listings, the first in tree order.
    pub(crate) run: Option<Run>,
    /// Work that comes after them, the last item first.
    pub(crate) rest: Vec<Pending>,
    /// Entries of a flat directory that were looked at.
    pub(crate) seen: Option<(std::sync::Arc<Flat>, Kids)>,
}

/// How much a worker wants to take at once.
#[derive(Clone, Copy)]
pub(crate) struct Appetite {
    pub(crate) dirs: u32,
    pub(crate) entries: u32,
    /// Leave half of a group to others.
    pub(crate) share: bool,
}

/// The answer to a worker that asks for work.
pub(crate) enum Take {
    /// The place to bring the result to, and the work.
    Job(u32, Pending),
    /// Nothing may be taken now.
    Wait,
    /// Nothing will come any more.
    Done,
}

pub(crate) struct Frontier {
    nodes: Vec<Node>,
    free: Vec<u32>,
    head: u32,
    tail: u32,
    /// Items that are not finished listings.
    open: usize,
    ready_bytes: usize,
    budget: usize,
}

impl Frontier {
    pub(crate) fn new(first: Pending, budget: usize) -> Frontier {
        let mut list =
            Frontier { nodes: Vec::new(), free: Vec::new(), head: NIL, tail: NIL, open: 0, ready_bytes: 0, budget };
        list.insert_before(NIL, Slot::Waiting(first));
        list
    }

    /// Inserts before the node `at`, or at the end for `NIL`.
    fn insert_before(&mut self, at: u32, slot: Slot) -> u32 {
        if !matches!(slot, Slot::Ready { .. }) {
            self.open += 1;
        }
        let prev = if at == NIL { self.tail } else { self.nodes[at as usize].prev };
        let node = Node { prev, next: at, slot };
        let id = match self.free.pop() {
            Some(id) => {
                self.nodes[id as usize] = node;
                id
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        match prev {
            NIL => self.head = id,
            prev => self.nodes[prev as usize].next = id,
        }
        match at {
            NIL => self.tail = id,
            at => self.nodes[at as usize].prev = id,
        }
        id
    }

    fn remove(&mut self, id: u32) -> Slot {
        let Node { prev, next, .. } = self.nodes[id as usize];
        match prev {
            NIL => self.head = next,
            prev => self.nodes[prev as usize].next = next,
        }
        match next {
            NIL => self.tail = prev,
            next => self.nodes[next as usize].prev = prev,
        }
        self.free.push(id);
        let slot = std::mem::replace(&mut self.nodes[id as usize].slot, Slot::Free);
        if !matches!(slot, Slot::Ready { .. }) {
            self.open -= 1;
        }
        slot
    }

    /// Removes an unfinished item; finished ones on both sides of it become one.
    fn remove_joining(&mut self, id: u32) -> Slot {
        let Node { prev, next, .. } = self.nodes[id as usize];
        let slot = self.remove(id);
        if prev == NIL || next == NIL {
            return slot;
        }
        let ready = |s: &Slot| matches!(s, Slot::Ready { .. });
        if !ready(&self.nodes[prev as usize].slot) || !ready(&self.nodes[next as usize].slot) {
            return slot;
        }
        if let Slot::Ready { runs: mut more, bytes: more_bytes } = self.remove(next)
            && let Slot::Ready { runs, bytes } = &mut self.nodes[prev as usize].slot
        {
            *bytes += more_bytes;
            if runs.len() < more.len() {
                // Moving the shorter side keeps the sum of all moves small.
                while let Some(run) = runs.pop_back() {
                    more.push_front(run);
                }
                *runs = more;
            } else {
                runs.append(&mut more);
            }
        }
        slot
    }

    /// The first item of waiting work, and the bytes of finished listings before it.
    fn first_waiting(&self) -> Option<(u32, usize)> {
        let (mut at, mut before) = (self.head, 0);
        while at != NIL {
            let node = &self.nodes[at as usize];
            match &node.slot {
                Slot::Ready { bytes, .. } => before += bytes,
                Slot::Waiting(Pending::Tail(_)) | Slot::Busy | Slot::Free => {}
                Slot::Waiting(_) => return Some((at, before)),
            }
            at = node.next;
        }
        None
    }

    fn admits(&self, before: usize, budget: usize) -> bool {
        self.ready_bytes < budget || before <= self.budget / 8
    }

    /// Whether a worker that asked now would get work, with a margin so that the consumer doesn't wake one for every
    /// listing that it takes.
    pub(crate) fn has_work(&self) -> bool {
        self.first_waiting().is_some_and(|(_, before)| self.admits(before, self.budget / 4 * 3))
    }

    pub(crate) fn take(&mut self, want: Appetite) -> Take {
        let Some((id, before)) = self.first_waiting() else {
            return if self.open == 0 { Take::Done } else { Take::Wait };
        };
        if !self.admits(before, self.budget) {
            return Take::Wait;
        }
        let part = match &mut self.nodes[id as usize].slot {
            Slot::Waiting(Pending::Group(group)) => {
                let left = group.end - group.at;
                let most = if want.share { left.div_ceil(2) } else { left };
                let count = want.dirs.min(most).max(1);
                (count < left).then(|| {
                    let part = Group { end: group.at + count, ..group.clone() };
                    group.at = part.end;
                    Pending::Group(part)
                })
            }
            Slot::Waiting(Pending::Span(span)) => {
                let count = want.entries.max(1);
                (count < span.end - span.at).then(|| {
                    let part = Span { end: span.at + count, ..span.clone() };
                    span.at = part.end;
                    Pending::Span(part)
                })
            }
            _ => None,
        };
        if let Some(part) = part {
            return Take::Job(self.insert_before(id, Slot::Busy), part);
        }
        match std::mem::replace(&mut self.nodes[id as usize].slot, Slot::Busy) {
            Slot::Waiting(work) => Take::Job(id, work),
            // `first_waiting` gives waiting items only.
            _ => Take::Wait,
        }
    }

    /// Puts a worker's result in the place of the work it took.
    pub(crate) fn publish(&mut self, busy: u32, fragment: Fragment) {
        if let Some(run) = fragment.run {
            let size = run.bytes;
            self.ready_bytes += size;
            let prev = self.nodes[busy as usize].prev;
            match self.nodes.get_mut(prev as usize).map(|n| &mut n.slot) {
                Some(Slot::Ready { runs, bytes }) => {
                    runs.push_back(run);
                    *bytes += size;
                }
                _ => {
                    self.insert_before(busy, Slot::Ready { runs: VecDeque::from([run]), bytes: size });
                }
            }
        }
        for pending in fragment.rest.into_iter().rev() {
            let flat = match &pending {
                Pending::Tail(tail) => Some(std::sync::Arc::clone(&tail.flat)),
                _ => None,
            };
            let id = self.insert_before(busy, Slot::Waiting(pending));
            if let Some(flat) = flat {
                flat.tail.store(id, Ordering::Relaxed);
            }
        }
        self.remove_joining(busy);
        if let Some((flat, kids)) = fragment.seen {
            self.seen(flat.tail.load(Ordering::Relaxed), kids);
        }
    }

    fn seen(&mut self, id: u32, kids: Kids) {
        let complete = match self.nodes.get_mut(id as usize).map(|n| &mut n.slot) {
            Some(Slot::Waiting(Pending::Tail(tail))) => tail.add(kids),
            _ => false,
        };
        if !complete {
            return;
        }
        // The groups go where the tail is; inserting them first keeps its neighbours in place.
        let slot = std::mem::replace(&mut self.nodes[id as usize].slot, Slot::Busy);
        if let Slot::Waiting(Pending::Tail(Tail { flat, left, kids })) = slot {
            for group in (Tail { flat, left, kids }).into_groups() {
                self.insert_before(id, Slot::Waiting(Pending::Group(group)));
            }
        }
        self.remove_joining(id);
    }

    /// Whether the consumer can take something.
    pub(crate) fn front_ready(&self) -> bool {
        self.nodes.get(self.head as usize).is_some_and(|n| matches!(n.slot, Slot::Ready { .. }))
    }

    /// Nothing left and nothing to come.
    pub(crate) fn is_done(&self) -> bool {
        self.open == 0
    }

    #[cfg(test)]
    pub(crate) fn ready_bytes(&self) -> usize {
        self.ready_bytes
    }

    /// Takes the first finished run.
    pub(crate) fn pop(&mut self) -> Option<Run> {
        let Slot::Ready { runs, bytes } = &mut self.nodes.get_mut(self.head as usize)?.slot else { return None };
        let run = runs.pop_front()?;
        *bytes -= run.bytes;
        self.ready_bytes -= run.bytes;
        if runs.is_empty() {
            self.remove(self.head);
        }
        Some(run)
    }
}
