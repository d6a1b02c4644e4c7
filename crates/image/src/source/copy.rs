//! Contents of files that could be read at any time, placed when their source has been listed.

use std::sync::Arc;

use super::{Content, Contents, Listing, Store};
use crate::chunks::{Piece, Pool, Slice};
use crate::error::Error;
use crate::place::{Append, Placer};
use crate::progress::Counter;
use crate::tree::{FileData, NodeId};

/// Places the contents of all files that came with the last source of `listing`, in the order they
/// came.
///
/// # Errors
/// What reading says, [`Error::Changed`] for a file that is not what was listed, and the errors of
/// the placer.
pub fn copy_files(
    listing: &mut Listing,
    placer: &mut Placer,
    counter: &Counter<'_>,
) -> Result<(), Error> {
    let files = listing.tree.new_files();
    let mut contents = Contents::new(listing);
    let mut collector = Collector::new(placer);
    let mut places: Vec<(NodeId, Vec<u64>)> = Vec::with_capacity(files.len());
    for entry in files {
        let mut content = contents.open(entry)?;
        let node = listing.tree.node_of(entry);
        let place = collector.file(&mut content, listing.tree.data(node), node.size());
        let place = place.map_err(|error| content.take_error().unwrap_or(error))?;
        places.push((listing.tree.node_id(entry), place));
        counter.bytes(node.size());
        counter.check()?;
    }
    collector.send()?;
    for (node, place) in places {
        listing.tree.set_place(node, &place);
    }
    if let Some(store) = listing.stores.last_mut() {
        let path = store.path().to_path_buf();
        *store = Store::Placed { path };
    }
    Ok(())
}

/// Collects the contents of many files, as they will lie in the image, before they are written.
struct Collector<'a> {
    placer: &'a mut Placer,
    pool: Pool,
    piece: Piece,
}

impl<'a> Collector<'a> {
    fn new(placer: &'a mut Placer) -> Self {
        let pool = Pool::default();
        Self {
            placer,
            piece: Piece::new(&pool),
            pool,
        }
    }

    /// Appends a file; returns where its pieces are, or all of it.
    fn file(
        &mut self,
        content: &mut Content<'_>,
        data: FileData<'_>,
        size: u64,
    ) -> Result<Vec<u64>, Error> {
        let mut place = Vec::with_capacity(1);
        match data {
            FileData::Whole { .. } => {
                place.push(self.position());
                self.read(content, 0, size)?;
            }
            FileData::Sparse(pieces) => {
                let mut before = None;
                for piece in pieces {
                    place.push(self.begin_piece(piece, before)?);
                    self.read(content, piece.offset, piece.len)?;
                    before = Some(piece);
                }
            }
        }
        self.fill_block()?;
        Ok(place)
    }

    fn read(&mut self, content: &mut Content<'_>, offset: u64, len: u64) -> Result<(), Error> {
        let mut done = 0;
        while done < len {
            let room = self.room(len - done)?;
            done += room.len() as u64;
            let at = offset + (done - room.len() as u64);
            // The content itself says what is wrong with it.
            let read = content.read_exact_at(at, room);
            read.map_err(|source| Error::Source {
                path: "contents".into(),
                op: "read",
                source,
            })?;
        }
        Ok(())
    }

    /// Room for 1 to `want` bytes, which the caller fills.
    fn room(&mut self, want: u64) -> Result<&mut [u8], Error> {
        if self.piece.is_full() {
            self.send()?;
        }
        Ok(self.piece.extend(want))
    }

    fn send(&mut self) -> Result<(), Error> {
        let piece = std::mem::replace(&mut self.piece, Piece::new(&self.pool));
        self.placer.put(Slice::whole(Arc::new(piece)))
    }
}

impl Append for Collector<'_> {
    fn position(&self) -> u64 {
        self.placer
            .position()
            .saturating_add(self.piece.len() as u64)
    }

    fn block_len(&self) -> u64 {
        self.placer.block_len()
    }

    fn zeroes(&mut self, len: u64) -> Result<(), Error> {
        let mut left = len;
        while left > 0 {
            let room = self.room(left)?;
            room.fill(0);
            left -= room.len() as u64;
        }
        Ok(())
    }
}
