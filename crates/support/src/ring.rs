//! A queue whose members can be taken out or moved from the middle at once, by the slot they were
//! given: what the kernel does with list heads inside its objects.
//!
//! It orders what is to be dropped by last use or by a hand that gives second chances. The caches
//! that go over a table of their own in its order need none: blocks (slots of the hash table),
//! pages (folios by number), inodes and dentries (one shard at a time).

/// No slot.
pub const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Node<T> {
    /// `None` while the slot is free; `next` then leads to the next free one.
    item: Option<T>,
    prev: u32,
    next: u32,
}

/// Slots stay the same while their item is in the ring, and are used again afterwards.
#[derive(Debug)]
pub struct Ring<T> {
    nodes: Vec<Node<T>>,
    first: u32,
    last: u32,
    free: u32,
    len: usize,
}

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            first: NONE,
            last: NONE,
            free: NONE,
            len: 0,
        }
    }
}

impl<T> Ring<T> {
    /// Items in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is no item in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What its slots take, free ones too, in bytes.
    pub fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node<T>>()
    }

    /// The slot at the front, or [`NONE`].
    pub fn first(&self) -> u32 {
        self.first
    }

    /// The slot after this one, or [`NONE`].
    pub fn next(&self, slot: u32) -> u32 {
        self.nodes.get(slot as usize).map_or(NONE, |node| node.next)
    }

    /// The item in a slot; `None` if there is none.
    pub fn get(&self, slot: u32) -> Option<&T> {
        self.nodes.get(slot as usize)?.item.as_ref()
    }

    /// Makes sure that one more item fits; false if there is no memory.
    pub fn try_reserve(&mut self) -> bool {
        self.free != NONE || self.nodes.try_reserve(1).is_ok()
    }

    /// Adds an item at the back; returns its slot.
    pub fn push_back(&mut self, item: T) -> u32 {
        let mut node = Node {
            item: Some(item),
            prev: NONE,
            next: NONE,
        };
        let slot = match self.nodes.get_mut(self.free as usize) {
            Some(place) => {
                let slot = self.free;
                std::mem::swap(place, &mut node);
                self.free = node.next;
                slot
            }
            None => {
                self.nodes.push(node);
                // Memory ends long before 32 bits do.
                (self.nodes.len() - 1) as u32
            }
        };
        self.len += 1;
        self.attach(slot);
        slot
    }

    /// Takes out the item in `slot`; `None` if there is none.
    pub fn remove(&mut self, slot: u32) -> Option<T> {
        self.get(slot)?;
        self.detach(slot);
        let free = self.free;
        let node = self.nodes.get_mut(slot as usize)?;
        node.next = free;
        let item = node.item.take();
        self.free = slot;
        self.len -= 1;
        if self.is_empty() {
            *self = Self::default();
        }
        item
    }

    /// Moves the item in `slot` to the back.
    pub fn move_to_back(&mut self, slot: u32) {
        if self.get(slot).is_some() && self.last != slot {
            self.detach(slot);
            self.attach(slot);
        }
    }

    /// Lets the queue begin with the item in `slot`: those before it come after the last.
    pub fn begin_with(&mut self, slot: u32) {
        if self.get(slot).is_none() || self.first == slot {
            return;
        }
        let (first, last) = (self.first, self.last);
        // OK to index: there is an item in the slot, and others before it.
        let prev = self.nodes[slot as usize].prev;
        self.nodes[last as usize].next = first;
        self.nodes[first as usize].prev = last;
        self.nodes[slot as usize].prev = NONE;
        self.nodes[prev as usize].next = NONE;
        (self.first, self.last) = (slot, prev);
    }

    /// Takes out the item at the front.
    pub fn pop_front(&mut self) -> Option<T> {
        self.remove(self.first)
    }

    fn attach(&mut self, slot: u32) {
        let last = self.last;
        if let Some(node) = self.nodes.get_mut(slot as usize) {
            (node.prev, node.next) = (last, NONE);
        }
        match self.nodes.get_mut(last as usize) {
            Some(before) => before.next = slot,
            None => self.first = slot,
        }
        self.last = slot;
    }

    fn detach(&mut self, slot: u32) {
        let Some(node) = self.nodes.get(slot as usize) else {
            return;
        };
        let (prev, next) = (node.prev, node.next);
        match self.nodes.get_mut(prev as usize) {
            Some(before) => before.next = next,
            None => self.first = next,
        }
        match self.nodes.get_mut(next as usize) {
            Some(after) => after.prev = prev,
            None => self.last = prev,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn items(ring: &Ring<u32>) -> Vec<u32> {
        let slots = std::iter::successors(Some(ring.first()), |slot| Some(ring.next(*slot)));
        let known = slots.take_while(|slot| *slot != NONE);
        known.map(|slot| *ring.get(slot).unwrap()).collect()
    }

    proptest! {
        #[test]
        fn a_ring_is_a_queue_with_access_to_its_middle(
            ops in prop::collection::vec((0..5, any::<prop::sample::Index>()), 1..100),
        ) {
            let mut ring = Ring::default();
            let mut model: VecDeque<(u32, u32)> = VecDeque::new();
            for (number, (op, which)) in (0..).zip(ops) {
                let at = (!model.is_empty()).then(|| which.index(model.len().max(1)));
                match (op, at) {
                    (0, Some(at)) => {
                        let (slot, item) = model.remove(at).unwrap();
                        prop_assert_eq!(ring.remove(slot), Some(item));
                        prop_assert_eq!(ring.remove(slot), None);
                    }
                    (1, Some(at)) => {
                        let pair = model.remove(at).unwrap();
                        ring.move_to_back(pair.0);
                        model.push_back(pair);
                    }
                    (2, Some(at)) => {
                        ring.begin_with(model[at].0);
                        model.rotate_left(at);
                    }
                    (3, _) => {
                        let item = model.pop_front().map(|(_, item)| item);
                        prop_assert_eq!(ring.pop_front(), item);
                    }
                    _ => model.push_back((ring.push_back(number), number)),
                }
                let expected: Vec<u32> = model.iter().map(|(_, item)| *item).collect();
                prop_assert_eq!(items(&ring), expected);
                prop_assert_eq!(ring.len(), model.len());
            }
        }
    }
}
