//! One writer as the policies see it.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use super::pacing::Pacing;

/// How much a writer counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Class {
    /// A user waits for each write: not throttled below its rate.
    RealTime,
    /// What there is no reason to treat otherwise.
    #[default]
    Normal,
    /// May wait for all the others.
    Idle,
}

/// What is remembered of one writer between two of its writes: one a thread, or one a caller that
/// should be treated as one (a user of a server). Small; it may be dropped at any time, after
/// [`super::Bdi::exited`] was called for it.
pub struct Task {
    class: Class,
    /// Where it runs, about: picks the counters it shares with few others.
    cpu: usize,
    /// Since when it has been in one throttling that has not ended.
    pub(super) throttled_since: Option<Duration>,
    /// Of the shipped design.
    pub(super) pacing: Pacing,
    /// Of another design; a unit, which takes no memory, before one has stored something.
    state: Box<dyn Any + Send + Sync>,
}

impl Default for Task {
    fn default() -> Self {
        Self::new(Class::default(), 0)
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("class", &self.class)
            .field("cpu", &self.cpu)
            .field("throttled_since", &self.throttled_since)
            .finish_non_exhaustive()
    }
}

impl Task {
    /// A writer that has written nothing yet. `cpu` is any number that is the same for the same
    /// processor or thread.
    #[must_use]
    pub fn new(class: Class, cpu: usize) -> Self {
        Self {
            class,
            cpu,
            throttled_since: None,
            pacing: Pacing::default(),
            state: Box::new(()),
        }
    }

    /// How much it counts.
    #[must_use]
    pub fn class(&self) -> Class {
        self.class
    }

    /// The processor it runs on, or a number that stands for one.
    #[must_use]
    pub fn cpu(&self) -> usize {
        self.cpu
    }

    /// The processor it runs on now.
    pub fn set_cpu(&mut self, cpu: usize) {
        self.cpu = cpu;
    }

    /// Calls `f` with what a policy remembers of the task: allocated at the first call, and anew if
    /// what there is has another type.
    pub fn with_state<T, R>(&mut self, f: impl FnOnce(&mut T) -> R) -> R
    where
        T: Any + Default + Send + Sync,
    {
        let state = std::mem::replace(&mut self.state, Box::new(()));
        let mut state = state.downcast::<T>().unwrap_or_default();
        let result = f(&mut state);
        self.state = state;
        result
    }

    /// What a policy remembers of the task, if it has stored anything of this type.
    #[must_use]
    pub fn state<T: Any>(&self) -> Option<&T> {
        self.state.downcast_ref()
    }
}
