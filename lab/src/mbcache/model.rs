//! Processes that set attributes, one after another in steps: the cache is the real one, blocks are
//! counted, and time is modelled.
//!
//! One thread does the steps of all; between two, where a lock is taken or waited for, a process
//! chosen at random goes on. Nothing sleeps within the cache: who would is known by the handles
//! that are out, and waits here, on one queue as in `mb1`. Processes do what the engine does:
//! search, else change the block in place if no other thread has it, else make one; then let go
//! of the old one.

use std::collections::HashMap;

use serde_json::{Value, json};
use uext4_lab_policies::mbcache::{Stats, Subject};
use uext4_mbcache::{Cache, Candidate, InUse, Key, Release};

use super::cost::{self, Costs, Place, round};
use super::counting::{Counting, Look};
use super::plan::{Draw, Plan};
use super::policy;
use crate::experiment::Failure;
use uext4_testkit::SplitMix64;

/// Users of a block at most.
const USERS_MAX: u32 = 1024;
/// Chains, locks of entries, parts.
const CHAINS: u64 = 1024;
const ENTRY_LOCKS: u64 = 128;
const PARTS: u64 = 64;
/// Inodes in a block of their table; where these blocks' numbers begin.
const INODES_PER_BLOCK: u64 = 16;
const TABLE: u64 = 1 << 40;

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    content: u64,
    users: u32,
    /// Tasks that have found it, and whether one has it for itself (`mb1`).
    found: u32,
    exclusive: bool,
}

/// What follows when a block is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Edit,
    Free,
}

#[derive(Debug)]
enum Step<'a> {
    Start,
    Search,
    Compare(Candidate<'a>),
    Take(Candidate<'a>),
    Next(Candidate<'a>),
    Hold(Then),
    Held(Release<'a>, Then),
    Wait(InUse<'a>, Then),
    Make,
}

/// What a task sleeps for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// A shared handle of this content.
    Content(u64),
    /// The exclusive handle of this block, or that no thread has found it.
    Block(u64),
}

#[derive(Debug)]
struct Task<'a> {
    step: Step<'a>,
    left: u64,
    /// What it draws from, so that it does the same whatever the order.
    own: SplitMix64,
    file: usize,
    content: u64,
    key: Option<Key>,
    old: Option<u64>,
    woken: bool,
}

/// Calls of the cache, by kind.
#[derive(Clone, Copy, Debug)]
enum Call {
    Find,
    End,
    Create,
    Release,
}

/// Contents as bytes.
struct Bodies(Vec<[u8; 8]>);

impl Bodies {
    fn get(&self, content: u64) -> &[u8] {
        &self.0[content as usize]
    }
}

struct World<'a> {
    subject: &'a Subject,
    cache: &'a Cache,
    bodies: &'a Bodies,
    has_handles: bool,
    shards: u64,
    blocks: Vec<Block>,
    free: Vec<u64>,
    inodes: Vec<Option<u64>>,
    /// Contents of blocks that a task has for itself.
    exclusive: HashMap<u64, u32>,
    sleepers: Vec<(usize, Reason)>,
    runnable: Vec<usize>,
    costs: Costs,
    counting: Counting,
    /// Locks of lists taken in each kind of call, and calls.
    lists: [(u64, u64); 4],
    sleeps: u64,
    wakeups: u64,
    wasted: u64,
}

/// Runs a plan under a policy: what a set cost.
///
/// # Errors
/// [`Failure`] for what is no policy, and for counts that do not add up.
pub fn run(policy: &str, plan: &Plan, seed: u64) -> Result<Value, Failure> {
    // As many blocks as a file system of 4 GiB has.
    let subject = policy::cache(policy, 1 << 20)?;
    let cache = &subject.cache;
    if let Some(cap) = plan.cap {
        cache.set_limit(cap as usize * cache.entry_memory());
    }
    let mut random = SplitMix64::new(seed ^ plan.tasks << 40 ^ plan.files << 20 ^ plan.values);
    let draw = Draw::new(plan);
    let bodies = Bodies((0..plan.values).map(u64::to_le_bytes).collect());
    let mut world = World {
        subject: &subject,
        cache,
        bodies: &bodies,
        has_handles: policy == policy::MB1,
        shards: if policy == policy::DEFAULT { PARTS } else { 1 },
        blocks: Vec::new(),
        free: Vec::new(),
        inodes: Vec::new(),
        exclusive: HashMap::new(),
        sleepers: Vec::new(),
        runnable: (0..plan.tasks as usize).collect(),
        costs: Costs::default(),
        counting: Counting::new(policy::gathers(policy)),
        lists: [(0, 0); 4],
        sleeps: 0,
        wakeups: 0,
        wasted: 0,
    };
    world.fill(plan, &draw, &mut random);
    world.check()?;
    world.costs = Costs::default();
    world.lists = [(0, 0); 4];
    let before = policy::counts(&subject);
    let streams = (0..plan.tasks).map(|_| SplitMix64::new(random.next_u64()));
    let mut tasks: Vec<Task<'_>> = streams.map(|own| Task::new(plan.sets, own)).collect();
    while !world.runnable.is_empty() {
        let at = random.below(world.runnable.len() as u64) as usize;
        let number = world.runnable[at];
        let task = &mut tasks[number];
        if matches!(task.step, Step::Start) {
            if task.left == 0 {
                world.runnable.swap_remove(at);
                continue;
            }
            task.begin(number as u64 * plan.files, plan.files, &draw);
        }
        if let Some(reason) = world.step(number, task) {
            world.runnable.swap_remove(at);
            world.sleepers.push((number, reason));
        }
    }
    world.check()?;
    let blocks = &world.blocks;
    let users = |at| blocks[at as usize].users;
    world.counting.commit(&mut world.costs, users);
    Ok(world.results(plan, &before))
}

impl Task<'_> {
    fn new(left: u64, own: SplitMix64) -> Self {
        Self {
            step: Step::Start,
            left,
            own,
            file: 0,
            content: 0,
            key: None,
            old: None,
            woken: false,
        }
    }

    /// The next set, on one of its files.
    fn begin(&mut self, first: u64, files: u64, draw: &Draw) {
        self.left -= 1;
        self.file = (first + self.own.below(files)) as usize;
        self.content = draw.one(&mut self.own);
        self.key = None;
    }
}

impl<'a> World<'a> {
    /// Gives every file a value, in one go.
    fn fill(&mut self, plan: &Plan, draw: &Draw, random: &mut SplitMix64) {
        self.inodes = vec![None; (plan.files * plan.tasks) as usize];
        let mut open: HashMap<u64, u64> = HashMap::new();
        for file in 0..self.inodes.len() {
            let content = draw.one(random);
            let last = open.get(&content).copied();
            let shared = last.filter(|&at| self.blocks[at as usize].users < USERS_MAX);
            let at = shared.unwrap_or_else(|| {
                let at = self.blocks.len() as u64;
                self.blocks.push(Block {
                    content,
                    ..Block::default()
                });
                at
            });
            open.insert(content, at);
            self.blocks[at as usize].users += 1;
            self.inodes[file] = Some(at);
        }
        for at in 0..self.blocks.len() {
            let block = self.blocks[at];
            let key = self.key(block.content);
            _ = self.cache.created(key, at as u64, block.users);
            self.subject.work();
        }
    }

    fn key(&self, content: u64) -> Key {
        self.cache.key(content as u32, self.bodies.get(content))
    }

    /// Calls the cache; what it counts is paid for.
    fn call<R>(
        &mut self,
        kind: Call,
        (task, content): (usize, u64),
        f: impl FnOnce(&'a Cache) -> R,
    ) -> R {
        let before = policy::counts(self.subject);
        let result = f(self.cache);
        let after = policy::counts(self.subject);
        let since = |of: fn(&Stats) -> u64| of(&after.index) - of(&before.index);
        let (chains, lists) = (since(|s| s.bucket_locks), since(|s| s.list_locks));
        let walked = since(|s| s.chain_steps) as f64 * cost::CHAIN_STEP;
        let scanned = since(|s| s.scanned + s.alloc_walk) as f64 * cost::CHAIN_STEP;
        let costs = &mut self.costs;
        if chains == 0 {
            costs.work(walked);
        }
        costs.lock(Place::Chain(content % CHAINS), task, chains, walked);
        costs.lock(Place::List(content % self.shards), task, lists, scanned);
        let entries = since(|s| s.entry_locks);
        costs.lock(Place::Entry(content % ENTRY_LOCKS), task, entries, 0.0);
        let hashes = after.cache.content_hashes - before.cache.content_hashes;
        costs.work(hashes as f64 * cost::CONTENT_HASH);
        let (all, calls) = &mut self.lists[kind as usize];
        (*all, *calls) = (*all + lists, *calls + 1);
        result
    }

    /// A task's next step; what it sleeps for, if it has to.
    fn step(&mut self, number: usize, task: &mut Task<'a>) -> Option<Reason> {
        let step = std::mem::replace(&mut task.step, Step::Start);
        let reason = match &step {
            Step::Search | Step::Next(_) => self.excluded(task.content),
            Step::Hold(_) => task.old.and_then(|at| self.in_use(at)),
            Step::Wait(..) => task
                .old
                .filter(|&at| self.block(at).found > 0)
                .map(Reason::Block),
            _ => None,
        };
        if reason.is_some() {
            self.sleeps += 1;
            self.wasted += u64::from(task.woken);
            task.woken = true;
            self.costs.work(cost::SWITCH);
            self.costs.lock(Place::Queue, number, 1, 0.0);
            task.step = step;
            return reason;
        }
        task.woken = false;
        task.step = match step {
            Step::Start => {
                self.costs.work(cost::SET);
                self.costs
                    .dirty(TABLE + task.file as u64 / INODES_PER_BLOCK);
                task.old = self.inodes[task.file];
                Step::Search
            }
            Step::Search => {
                let body = self.bodies.get(task.content);
                let key = self.call(Call::Release, (number, task.content), |cache| {
                    cache.key(task.content as u32, body)
                });
                task.key = Some(key);
                let found = self.call(Call::Find, (number, task.content), |cache| cache.find(key));
                self.found(number, task, found)
            }
            Step::Next(candidate) => {
                let at = candidate.value();
                let next = self.call(Call::Find, (number, task.content), |_| candidate.next());
                self.unfound(at);
                self.found(number, task, next)
            }
            Step::Compare(candidate) => self.compare(number, task, candidate),
            Step::Take(candidate) => self.take(number, task, candidate),
            Step::Hold(then) => self.hold(number, task, then),
            Step::Held(release, then) => self.held(number, task, release, then),
            Step::Wait(in_use, then) => {
                self.call(Call::Release, (number, task.content), |_| in_use.wait());
                Step::Hold(then)
            }
            Step::Make => self.make(number, task),
        };
        None
    }

    fn block(&mut self, at: u64) -> &mut Block {
        &mut self.blocks[at as usize]
    }

    /// Whether a thread has a block of this content for itself.
    fn excluded(&self, content: u64) -> Option<Reason> {
        let excluded = self.has_handles && self.exclusive.contains_key(&content);
        excluded.then_some(Reason::Content(content))
    }

    fn in_use(&self, at: u64) -> Option<Reason> {
        let block = self.blocks[at as usize];
        let in_use = self.has_handles && (block.found > 0 || block.exclusive);
        in_use.then_some(Reason::Block(at))
    }

    fn found(
        &mut self,
        number: usize,
        task: &Task<'a>,
        candidate: Option<Candidate<'a>>,
    ) -> Step<'a> {
        match candidate {
            Some(candidate) => {
                let at = candidate.value();
                self.block(at).found += 1;
                self.costs.line(at, number);
                Step::Compare(candidate)
            }
            None if task.old.is_some() => Step::Hold(Then::Edit),
            None => Step::Make,
        }
    }

    /// A task has let go of a block that it had found.
    fn unfound(&mut self, at: u64) {
        self.block(at).found -= 1;
        self.wake(at, self.blocks[at as usize].content);
    }

    /// Wakes all if one waits for this block or its content.
    fn wake(&mut self, at: u64, content: u64) {
        let waits = |(_, reason): &(usize, Reason)| {
            *reason == Reason::Block(at) || *reason == Reason::Content(content)
        };
        let is_unused = self.blocks[at as usize].found == 0;
        if (is_unused || self.has_handles) && self.sleepers.iter().any(waits) {
            let woken = std::mem::take(&mut self.sleepers);
            self.wakeups += woken.len() as u64;
            self.costs.work(cost::SWITCH * woken.len() as f64);
            self.runnable.extend(woken.iter().map(|(task, _)| *task));
        }
    }

    fn compare(&mut self, number: usize, task: &mut Task<'a>, found: Candidate<'a>) -> Step<'a> {
        self.costs.work(cost::COMPARE);
        let at = found.value();
        let block = *self.block(at);
        if block.users == 0 || block.content != task.content {
            return Step::Next(found);
        }
        if task.old == Some(at) {
            self.call(Call::End, (number, task.content), |_| drop(found));
            self.unfound(at);
            return Step::Start;
        }
        Step::Take(found)
    }

    fn take(&mut self, number: usize, task: &mut Task<'a>, found: Candidate<'a>) -> Step<'a> {
        let at = found.value();
        let block = *self.block(at);
        if block.users == 0 || block.content != task.content || block.users >= USERS_MAX {
            self.counting.look(&mut self.costs, number, at, Look::Alone);
            if block.users >= USERS_MAX {
                found.set_full();
            }
            return Step::Next(found);
        }
        let users = block.users + 1;
        let taken = self.call(Call::End, (number, task.content), |_| found.taken(users));
        self.costs.line(at, number);
        self.unfound(at);
        let (costs, counting) = (&mut self.costs, &mut self.counting);
        if taken.is_err() {
            counting.look(costs, number, at, Look::Alone);
            return Step::Search;
        }
        counting.change(costs, number, (at, users - 1), users < USERS_MAX);
        self.block(at).users = users;
        self.inodes[task.file] = Some(at);
        task.old.map_or(Step::Start, |_| Step::Hold(Then::Free))
    }

    /// Is about to change or free the old block.
    fn hold(&mut self, number: usize, task: &mut Task<'a>, then: Then) -> Step<'a> {
        let Some(at) = task.old else {
            return Step::Start;
        };
        let content = self.block(at).content;
        let body = self.bodies.get(content);
        let release = self.call(Call::Release, (number, content), |cache| {
            cache.release_read(content as u32, body, at)
        });
        if self.has_handles {
            self.block(at).exclusive = true;
            *self.exclusive.entry(content).or_default() += 1;
        }
        Step::Held(release, then)
    }

    /// Ends [`hold`](Self::hold).
    fn let_go(&mut self, at: u64, content: u64) {
        if self.has_handles {
            self.block(at).exclusive = false;
            if let Some(count) = self.exclusive.get_mut(&content) {
                *count -= 1;
                if *count == 0 {
                    self.exclusive.remove(&content);
                }
            }
            self.wake(at, content);
        }
    }

    fn held(
        &mut self,
        number: usize,
        task: &mut Task<'a>,
        release: Release<'a>,
        then: Then,
    ) -> Step<'a> {
        let Some(at) = task.old else {
            return Step::Start;
        };
        let Block { content, users, .. } = *self.block(at);
        let who = (number, content);
        if users > 1 {
            let (costs, counting) = (&mut self.costs, &mut self.counting);
            let next = match then {
                Then::Edit => {
                    counting.look(costs, number, at, Look::Others);
                    self.call(Call::Release, who, |_| drop(release));
                    Step::Make
                }
                Then::Free => {
                    counting.change(costs, number, (at, users), users < USERS_MAX);
                    self.block(at).users -= 1;
                    self.call(Call::Release, who, |_| release.left(users - 1));
                    Step::Start
                }
            };
            self.let_go(at, content);
            return next;
        }
        let removed = self.call(Call::Release, who, |_| release.remove());
        self.let_go(at, content);
        let (costs, counting) = (&mut self.costs, &mut self.counting);
        if let Err(in_use) = removed {
            counting.look(costs, number, at, Look::Alone);
            return Step::Wait(in_use, then);
        }
        match then {
            Then::Edit => {
                counting.edit(costs, number, at);
                self.block(at).content = task.content;
                self.create(number, task, at);
            }
            Then::Free => {
                counting.free(costs, number, at);
                self.block(at).users = 0;
                self.free.push(at);
            }
        }
        Step::Start
    }

    fn create(&mut self, number: usize, task: &mut Task<'a>, at: u64) {
        let Some(key) = task.key else {
            return;
        };
        self.call(Call::Create, (number, task.content), |cache| {
            _ = cache.created(key, at, 1);
        });
        self.subject.work();
    }

    /// A new block: itself, its bitmap and descriptor.
    fn make(&mut self, number: usize, task: &mut Task<'a>) -> Step<'a> {
        let at = self.free.pop().unwrap_or_else(|| {
            self.blocks.push(Block::default());
            self.blocks.len() as u64 - 1
        });
        self.costs.work(cost::SEARCH);
        self.costs.buffer(at, number, 3);
        self.block(at).content = task.content;
        self.block(at).users = 1;
        self.inodes[task.file] = Some(at);
        self.create(number, task, at);
        task.old.map_or(Step::Start, |_| Step::Hold(Then::Free))
    }

    /// Every block has as many users as there are inodes with it.
    fn check(&self) -> Result<(), Failure> {
        let mut users = vec![0; self.blocks.len()];
        for &at in self.inodes.iter().flatten() {
            users[at as usize] += 1;
        }
        let is_right = self.blocks.iter().zip(&users).all(|(b, &n)| b.users == n);
        match is_right && self.sleepers.is_empty() {
            true => Ok(()),
            false => Err(Failure::Run("counts of users do not add up".to_owned())),
        }
    }

    fn results(&self, plan: &Plan, before: &policy::Counts) -> Value {
        let after = policy::counts(self.subject);
        let since = |of: fn(&Stats) -> u64| of(&after.index) - of(&before.index);
        let compares = after.cache.compares - before.cache.compares;
        let sets = (plan.sets * plan.tasks) as f64;
        let each = |count: u64| round(count as f64 / sets);
        let of_calls = |kind: Call| {
            let (lists, calls) = self.lists[kind as usize];
            round(lists as f64 / calls.max(1) as f64)
        };
        let hit_lists = self.lists[Call::Find as usize].0 + self.lists[Call::End as usize].0;
        let locks = since(Stats::locks);
        let blocks = self.blocks.iter().filter(|block| block.users > 0).count();
        json!({
            "time_us": round(self.costs.elapsed(plan.tasks) / plan.sets as f64),
            "locks": each(locks),
            "handoffs": each(self.costs.handoffs),
            "list_locks_find": of_calls(Call::Find),
            "list_locks_hit": round(hit_lists as f64 / compares.max(1) as f64),
            "list_locks_create": of_calls(Call::Create),
            "compares": each(compares),
            "chain_steps": each(since(|s| s.chain_steps)),
            "alloc_walk": each(since(|s| s.alloc_walk)),
            "sleeps": each(self.sleeps),
            "wakeups": each(self.wakeups),
            "wakeups_wasted": each(self.wasted),
            "buffer_work": each(self.costs.buffer_locks + self.costs.updates),
            "sharing": round(self.inodes.len() as f64 / blocks.max(1) as f64),
            "cache_bytes": after.cache.memory,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_twice_and_as_many_users_under_every_policy() {
        for (values, files, cap) in [(3, 8, None), (300, 8, Some(40)), (2, 1500, None)] {
            let plan = Plan {
                values,
                files,
                tasks: 6,
                sets: 60,
                zipf: if cap.is_some() { 0.9 } else { 0.0 },
                cap,
            };
            for policy in policy::ALL {
                let first = run(policy, &plan, 5).unwrap();
                assert_eq!(first, run(policy, &plan, 5).unwrap(), "{policy}");
            }
        }
    }
}
