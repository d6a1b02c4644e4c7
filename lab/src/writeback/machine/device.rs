//! A block device: a queue of requests that merge, served in the order of their place.
//!
//! The queue holds 128 requests. A caller that finds it full sleeps until one ends and puts in
//! its next then; those who sleep take turns. [`Model::batch`] lets a woken one put in more at
//! once, for 20 ms, past the limit by up to a half, as the kernel of 2010 did with 32
//! (`BLK_BATCH_REQ`); the design paper's recipe has no such thing, and the disk of the thread
//! behaved as if it had none.
//!
//! An idle device is plugged by the first request it gets, as all were until 2.6.38: it begins
//! when it has four, or after 3 ms, so that what comes one by one can merge.

use std::collections::{BTreeMap, VecDeque};

use uext4_testkit::SplitMix64;
use uext4_writeback::throttle::{Outcome, PAGE_SIZE};

use super::{Event, MICRO, MILLI, Machine, Nanos, SECOND, at};

/// How long a woken submitter may put requests into a full queue.
const BATCH_TIME: Nanos = 20 * MILLI;
/// Requests at which a plugged device begins, and how long it waits for them.
const UNPLUG_REQUESTS: usize = 4;
const UNPLUG_TIME: Nanos = 3 * MILLI;
/// Pages between the places of two regions: they never touch.
const REGION_SPACE: u64 = 1 << 32;

/// What a device is like.
#[derive(Clone, Debug)]
pub struct Model {
    /// Bytes a second.
    pub bandwidth: u64,
    /// What a request costs that does not begin where the last ended.
    pub seek: Nanos,
    /// Most pages of a request.
    pub request_pages: u64,
    /// Requests the queue holds.
    pub queue: usize,
    /// Requests a woken submitter may put into a full queue; 0: none.
    pub batch: u32,
    /// Flushers that write to it.
    pub flushers: u32,
}

impl Model {
    /// A disk of 60 MB/s with 8 ms a seek.
    pub fn disk() -> Self {
        Self {
            bandwidth: 60_000_000,
            seek: 8 * MILLI,
            request_pages: 128,
            queue: 128,
            batch: 0,
            flushers: 1,
        }
    }

    /// An array of 700 MB/s.
    pub fn array() -> Self {
        Self {
            bandwidth: 700_000_000,
            seek: MILLI / 10,
            ..Self::disk()
        }
    }

    /// Twelve disks as RAID 0 behind a controller's cache: 15,000 requests a second.
    pub fn striped() -> Self {
        Self {
            seek: 66 * MICRO,
            ..Self::array()
        }
    }

    /// A device that is held to so many bytes a second and does not seek.
    pub fn held(bandwidth: u64) -> Self {
        Self {
            bandwidth,
            seek: 0,
            ..Self::disk()
        }
    }

    /// A stick of 10 MB/s.
    pub fn stick() -> Self {
        Self {
            bandwidth: 10_000_000,
            seek: MILLI,
            ..Self::disk()
        }
    }
}

/// Adjacent pages of a region: a large file's, or what the small ones of a directory share.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub region: u64,
    pub start: u64,
    pub pages: u64,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    pages: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub requests: u64,
    pub seeks: u64,
    pub pages: u64,
    pub busy: Nanos,
}

/// What a submitter may still put into a full queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Batch {
    left: u32,
    until: Nanos,
}

#[derive(Debug)]
pub struct Device {
    model: Model,
    /// By place.
    queue: BTreeMap<u64, Request>,
    serving: Option<(u64, Request)>,
    /// Until when it waits for more requests.
    plugged: Option<Nanos>,
    /// Where the last request ended.
    head: u64,
    waiters: VecDeque<u32>,
    removed: bool,
    pub counts: Counts,
}

impl Device {
    pub fn new(model: Model) -> Self {
        Self {
            model,
            queue: BTreeMap::new(),
            serving: None,
            plugged: None,
            head: u64::MAX,
            waiters: VecDeque::new(),
            removed: false,
            counts: Counts::default(),
        }
    }

    pub fn mark(&mut self) {
        self.counts = Counts::default();
    }

    pub fn remove(&mut self) {
        self.removed = true;
    }

    pub fn request_pages(&self) -> u64 {
        self.model.request_pages
    }

    fn len(&self) -> usize {
        self.queue.len() + usize::from(self.serving.is_some())
    }

    /// Takes as much of the run as it can; how many pages.
    fn submit(&mut self, run: Run, batch: &mut Batch, now: Nanos) -> u64 {
        let most = self.model.request_pages;
        let place = run.region * REGION_SPACE + run.start;
        let mut done = 0;
        if self.len() == 0 {
            self.plugged = Some(now + UNPLUG_TIME);
        }
        if let Some((&start, last)) = self.queue.range_mut(..place).next_back()
            && start + last.pages == place
        {
            let merged = run.pages.min(most.saturating_sub(last.pages));
            last.pages += merged;
            done += merged;
        }
        while done < run.pages && self.has_room(batch, now) {
            let pages = (run.pages - done).min(most);
            self.queue.insert(place + done, Request { pages });
            done += pages;
            if self.len() == self.model.queue {
                *batch = Batch {
                    left: self.model.batch,
                    until: now + BATCH_TIME,
                };
            }
        }
        done
    }

    fn has_room(&self, batch: &mut Batch, now: Nanos) -> bool {
        let (len, most) = (self.len(), self.model.queue);
        if len < most {
            return true;
        }
        let granted = batch.left > 0 && now < batch.until && len < most + most / 2;
        batch.left -= u32::from(granted);
        granted
    }

    /// Begins the next request, if there is one and none is served; how long it takes.
    fn serve(&mut self, random: &mut SplitMix64, now: Nanos) -> Option<Nanos> {
        let waits = self.plugged.is_some_and(|until| now < until);
        if self.serving.is_some() || self.removed || (waits && self.len() < UNPLUG_REQUESTS) {
            return None;
        }
        self.plugged = None;
        let next = self.queue.range(self.head..).next();
        let (&place, &request) = next.or_else(|| self.queue.iter().next())?;
        self.queue.remove(&place);
        let mut time = request.pages * PAGE_SIZE * SECOND / self.model.bandwidth;
        if place != self.head {
            // A tenth up or down, as the head and the platter happen to stand.
            let seek = self.model.seek;
            time += seek - seek / 10 + random.next_u64() % (seek / 5 + 1);
            self.counts.seeks += 1;
        }
        self.head = place + request.pages;
        self.serving = Some((place, request));
        self.counts.busy += time;
        Some(time)
    }
}

impl Machine {
    /// Gives a run to the device for an actor; how many pages it took. If not all, the actor is
    /// among those who are woken when there is room.
    pub(super) fn submit(&mut self, actor: u32, device: usize, run: Run, batch: &mut Batch) -> u64 {
        let done = self.devices[device].submit(run, batch, self.now);
        if let Some(until) = self.devices[device].plugged {
            self.push(until, Event::Unplug(device as u32));
        }
        if done < run.pages {
            self.devices[device].waiters.push_back(actor);
        }
        self.serve(device);
        done
    }

    pub(super) fn serve(&mut self, device: usize) {
        if let Some(time) = self.devices[device].serve(&mut self.random, self.now) {
            self.push(self.now + time, Event::Served(device as u32));
        }
    }

    /// A request ended.
    pub(super) fn served(&mut self, device: usize) {
        let it = &mut self.devices[device];
        if it.removed {
            return;
        }
        let Some((_, request)) = it.serving.take() else {
            return;
        };
        it.counts.requests += 1;
        it.counts.pages += request.pages;
        self.bdis[device].completed(request.pages, Outcome::Written, at(self.now));
        self.serve(device);
        let it = &mut self.devices[device];
        if it.len() < it.model.queue
            && let Some(actor) = it.waiters.pop_front()
        {
            let left = it.model.batch;
            self.grant_batch(actor, left);
            self.wake(actor);
        }
    }

    /// A woken submitter may go on for a while.
    fn grant_batch(&mut self, actor: u32, left: u32) {
        let batch = Batch {
            left,
            until: self.now + BATCH_TIME,
        };
        let (index, writers) = (actor as usize, self.writers.len());
        match index < writers {
            true => self.writers[index].batch = batch,
            false => self.flushers[index - writers].batch = batch,
        }
    }
}
