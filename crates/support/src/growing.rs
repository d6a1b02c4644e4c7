//! Tables that become longer, and values that are replaced, while other threads read them without
//! a lock.
//!
//! What a file system has of each group is a table that never changes its length, but for the day
//! on which the file system grows while it is mounted. The kernel copies such an array and frees
//! the old one when no reader is left (`ext4_kvfree_array_rcu`). Here nothing that was handed out
//! moves or is freed before the owner is: a reference that a thread holds stays good. Before the
//! first growth, an access costs one comparison more than that to a slice or field.
//!
//! One thread at a time appends or replaces, which the caller sees to; any number read meanwhile.
//! Memory: each replaced value stays.

use std::fmt;
use std::ops::Index;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A table that can become longer.
pub struct Growing<T> {
    first: Box<[T]>,
    later: Box<boxcar::Vec<T>>,
    /// Of both; what is behind it is being appended.
    len: AtomicUsize,
}

impl<T> Growing<T> {
    /// The table with what it has at first.
    pub fn new(first: Vec<T>) -> Self {
        Self {
            len: AtomicUsize::new(first.len()),
            first: first.into_boxed_slice(),
            later: Box::default(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The one at `index`; `None` behind the last.
    pub fn get(&self, index: usize) -> Option<&T> {
        match index.checked_sub(self.first.len()) {
            None => self.first.get(index),
            Some(later) if index < self.len() => self.later.get(later),
            Some(_) => None,
        }
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Puts more behind the last. Threads see all of them at once.
    pub fn append(&self, more: impl IntoIterator<Item = T>) {
        let mut count = 0;
        for one in more {
            self.later.push(one);
            count += 1;
        }
        // Not before the last of them is in its place.
        self.len.fetch_add(count, Ordering::Release);
    }
}

impl<T> Index<usize> for Growing<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        match index.checked_sub(self.first.len()) {
            None => &self.first[index],
            Some(later) => &self.later[later],
        }
    }
}

impl<T> FromIterator<T> for Growing<T> {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Self {
        Self::new(all.into_iter().collect())
    }
}

impl<T: fmt::Debug> fmt::Debug for Growing<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A value that another takes the place of now and then.
pub struct Replaced<T> {
    first: T,
    later: Box<boxcar::Vec<T>>,
    /// How often it was replaced.
    times: AtomicUsize,
}

impl<T> Replaced<T> {
    /// The first value.
    pub fn new(first: T) -> Self {
        Self {
            first,
            later: Box::default(),
            times: AtomicUsize::new(0),
        }
    }

    /// The value as it is now. What is returned stays as it is when another takes its place.
    #[inline]
    pub fn get(&self) -> &T {
        match self.times.load(Ordering::Acquire) {
            0 => &self.first,
            times => &self.later[times - 1],
        }
    }

    /// Puts another in its place.
    pub fn set(&self, value: T) {
        let at = self.later.push(value);
        self.times.store(at + 1, Ordering::Release);
    }
}

impl<T: fmt::Debug> fmt::Debug for Replaced<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::thread;

    use super::*;

    #[test]
    fn a_table_becomes_longer_while_it_is_read() {
        let table = Growing::new((0..10).collect());
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    let len = table.len();
                    assert!((0..len).all(|index| table[index] == index));
                    assert!(table.iter().count() >= len);
                }
            });
            for round in 1..100 {
                table.append(round * 10..round * 10 + 10);
            }
            done.store(true, Relaxed);
        });
        assert_eq!(table.len(), 1000);
        assert_eq!((table.get(999), table.get(1000)), (Some(&999), None));
    }

    #[test]
    fn what_was_handed_out_stays_when_a_value_is_replaced() {
        let value = Replaced::new(String::from("first"));
        let first = value.get();
        value.set(String::from("second"));
        let second = value.get();
        value.set(String::from("third"));
        assert_eq!((first.as_str(), second.as_str()), ("first", "second"));
        assert_eq!(value.get(), "third");
    }
}
