//! Whether two files hold the same data: read where their maps have data, in pieces, up to the
//! first byte that differs. Holes are not read; where only one file has data, it must be zeroes.

use std::ops::Range;
use std::sync::Arc;

use uext4::data::DataRanges;
use uext4::{Error, Image, Inode};

use crate::budget::Budget;

/// Bytes read at once of each file.
const PIECE: usize = 1 << 20;

/// Compares the files of two images, one pair after the other.
#[derive(Debug)]
pub struct SameData<'a> {
    old: &'a Image,
    new: &'a Image,
    budget: Arc<Budget>,
    /// What was read last, of each image.
    old_piece: Vec<u8>,
    new_piece: Vec<u8>,
}

/// An error, and the image that it is of.
#[derive(Debug)]
pub enum Unread {
    /// The old one.
    Old(Error),
    /// The new one.
    New(Error),
}

impl<'a> SameData<'a> {
    /// Nothing is read yet. Threads that compare the same images share a [`Budget::of_two`].
    pub fn new(old: &'a Image, new: &'a Image, budget: Arc<Budget>) -> Self {
        Self {
            old,
            new,
            budget,
            old_piece: vec![0; PIECE],
            new_piece: vec![0; PIECE],
        }
    }

    /// Whether two regular files have the same size and hold the same bytes.
    ///
    /// # Errors
    /// Damage of a map, a part that cannot be read before any difference was found, files that map
    /// more data together than the images hold.
    pub fn holds(&mut self, old: &Inode, new: &Inode) -> Result<bool, Unread> {
        if old.size != new.size {
            return Ok(false);
        }
        let mut olds = Ranges::new(self.old, old).map_err(Unread::Old)?;
        let mut news = Ranges::new(self.new, new).map_err(Unread::New)?;
        let mut at = 0;
        while at < old.size {
            let in_old = olds.part(at).map_err(Unread::Old)?;
            let in_new = news.part(at).map_err(Unread::New)?;
            let end = in_old.end.min(in_new.end).min(old.size);
            if in_old.has_data || in_new.has_data {
                let part = at..end.min(at.saturating_add(PIECE as u64));
                if !self.part_is_same(old, new, &part, [in_old.has_data, in_new.has_data])? {
                    return Ok(false);
                }
                at = part.end;
            } else {
                at = end;
            }
        }
        Ok(true)
    }

    fn part_is_same(
        &mut self,
        old: &Inode,
        new: &Inode,
        part: &Range<u64>,
        [in_old, in_new]: [bool; 2],
    ) -> Result<bool, Unread> {
        // OK to cast: a piece at most.
        let len = (part.end - part.start) as usize;
        let (olds, news) = (&mut self.old_piece[..len], &mut self.new_piece[..len]);
        if in_old {
            let taken = self.budget.take(old, part);
            let read = taken.and_then(|()| read(self.old, old, part.start, olds));
            read.map_err(Unread::Old)?;
        }
        if in_new {
            let taken = self.budget.take(new, part);
            let read = taken.and_then(|()| read(self.new, new, part.start, news));
            read.map_err(Unread::New)?;
        }
        Ok(match (in_old, in_new) {
            (true, true) => olds == news,
            (true, false) => is_zero(olds),
            (false, _) => is_zero(news),
        })
    }
}

/// Fills all of `piece`; after an early end of the file with zeroes.
fn read(fs: &Image, inode: &Inode, at: u64, piece: &mut [u8]) -> Result<(), Error> {
    let mut done = 0;
    while done < piece.len() {
        match fs.read_at(inode, at + done as u64, &mut piece[done..])? {
            0 => {
                piece[done..].fill(0);
                break;
            }
            got => done += got,
        }
    }
    Ok(())
}

fn is_zero(bytes: &[u8]) -> bool {
    const ZEROES: [u8; 4096] = [0; 4096];
    let mut chunks = bytes.chunks(ZEROES.len());
    chunks.all(|chunk| chunk == &ZEROES[..chunk.len()])
}

/// A part of a file that is data as a whole, or a hole.
struct Part {
    end: u64,
    has_data: bool,
}

/// The data of a file, asked for in ascending order.
struct Ranges {
    rest: DataRanges,
    /// The range that ends last of those asked for; empty at the end of the file.
    next: Range<u64>,
}

impl Ranges {
    fn new(fs: &Image, inode: &Inode) -> Result<Self, Error> {
        Ok(Self {
            rest: fs.data_ranges(inode)?,
            next: 0..0,
        })
    }

    /// The part that `at` is in, from there.
    fn part(&mut self, at: u64) -> Result<Part, Error> {
        while self.next.end <= at {
            let Some(next) = self.rest.next() else {
                self.next = u64::MAX..u64::MAX;
                break;
            };
            self.next = next?;
        }
        let has_data = self.next.start <= at;
        let end = match has_data {
            true => self.next.end,
            false => self.next.start,
        };
        Ok(Part { end, has_data })
    }
}
