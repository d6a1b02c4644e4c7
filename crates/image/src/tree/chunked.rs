//! A list that grows without moving: half of a vector's memory would be what it had before.

use std::ops::{Index, IndexMut};

/// Elements of a chunk, a power of two.
const CHUNK: usize = 1 << 13;

/// A list in chunks of [`CHUNK`] elements; the first one grows as it is needed.
#[derive(Debug)]
pub(super) struct Chunked<T> {
    chunks: Vec<Vec<T>>,
    len: usize,
}

impl<T> Chunked<T> {
    /// A list of one element.
    pub(super) fn of(first: T) -> Self {
        Self {
            chunks: vec![vec![first]],
            len: 1,
        }
    }

    /// Number of elements.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes that its elements have, or may have without more.
    #[cfg(test)]
    pub(super) fn allocated(&self) -> usize {
        self.chunks
            .iter()
            .map(|chunk| chunk.capacity() * size_of::<T>())
            .sum()
    }

    /// Adds an element.
    pub(super) fn push(&mut self, element: T) {
        self.len += 1;
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK => last.push(element),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(element);
                self.chunks.push(chunk);
            }
        }
    }

    /// All elements.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }

    /// All elements, to be changed.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.chunks.iter_mut().flatten()
    }
}

impl<T> Index<usize> for Chunked<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        &self.chunks[index / CHUNK][index % CHUNK]
    }
}

impl<T> IndexMut<usize> for Chunked<T> {
    fn index_mut(&mut self, index: usize) -> &mut T {
        &mut self.chunks[index / CHUNK][index % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_where_they_were_put() {
        let mut list = Chunked::of(0);
        for i in 1..3 * CHUNK + 2 {
            list.push(i);
        }
        list[CHUNK] = 7;
        list.iter_mut().for_each(|element| *element += 1);
        assert_eq!(list.len(), 3 * CHUNK + 2);
        assert_eq!(list.iter().count(), list.len());
        for i in [0, 1, CHUNK - 1, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 1] {
            assert_eq!(list[i], i + 1);
        }
        assert_eq!(list[CHUNK], 8);
    }
}
