//! Processors and the thread that waits for one: one queue for all, first come first served,
//! slices of 1 ms.

use std::collections::VecDeque;

use super::{MILLI, Nanos};

const SLICE: Nanos = MILLI;
const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Sleeping,
    Ready,
    Running,
}

#[derive(Debug)]
struct Actor {
    state: State,
    /// Counts the sleeps, so that a timer of an old one is known.
    sleep: u32,
    cpu: u32,
    /// What it ran since it got the processor.
    ran: Nanos,
    /// What it has to run before its step ends.
    left: Nanos,
}

#[derive(Debug)]
pub struct Cpus {
    actors: Vec<Actor>,
    idle: Vec<u32>,
    ready: VecDeque<u32>,
}

impl Cpus {
    pub fn new(count: usize) -> Self {
        Self {
            actors: Vec::new(),
            idle: (0..count as u32).rev().collect(),
            ready: VecDeque::new(),
        }
    }

    pub fn register(&mut self, id: usize) {
        debug_assert_eq!(id, self.actors.len());
        self.actors.push(Actor {
            state: State::Sleeping,
            sleep: 0,
            cpu: NOWHERE,
            ran: 0,
            left: 0,
        });
    }

    /// The processor it is on.
    pub fn cpu(&self, actor: usize) -> usize {
        self.actors[actor].cpu as usize
    }

    /// Makes a sleeping actor ready; false if it did not sleep.
    pub fn wake(&mut self, actor: u32) -> bool {
        let it = &mut self.actors[actor as usize];
        if it.state != State::Sleeping {
            return false;
        }
        it.sleep = it.sleep.wrapping_add(1);
        it.state = State::Ready;
        self.ready.push_back(actor);
        true
    }

    /// Takes the next that is ready to an idle processor, with what is left of its step.
    pub fn next(&mut self) -> Option<(u32, Nanos)> {
        if self.idle.is_empty() {
            return None;
        }
        let actor = self.ready.pop_front()?;
        let it = &mut self.actors[actor as usize];
        it.cpu = self.idle.pop()?;
        it.state = State::Running;
        it.ran = 0;
        Some((actor, std::mem::take(&mut it.left)))
    }

    /// Whether it may run so long without giving way.
    pub fn keeps(&mut self, actor: u32, time: Nanos) -> bool {
        let it = &mut self.actors[actor as usize];
        it.ran += time;
        it.ran <= SLICE || self.ready.is_empty()
    }

    /// To the end of the queue, with this much of its step to do.
    pub fn preempt(&mut self, actor: u32, left: Nanos) {
        let it = &mut self.actors[actor as usize];
        it.left = left;
        it.state = State::Ready;
        self.ready.push_back(actor);
    }

    /// It sleeps; the number of this sleep.
    pub fn sleep(&mut self, actor: u32) -> u32 {
        self.block(actor);
        self.actors[actor as usize].sleep
    }

    pub fn block(&mut self, actor: u32) {
        self.actors[actor as usize].state = State::Sleeping;
    }

    pub fn is_sleep(&self, actor: u32, sleep: u32) -> bool {
        self.actors[actor as usize].sleep == sleep
    }

    pub fn release(&mut self, actor: u32) {
        let it = &mut self.actors[actor as usize];
        if it.cpu != NOWHERE {
            self.idle.push(it.cpu);
            it.cpu = NOWHERE;
        }
    }
}
