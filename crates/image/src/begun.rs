//! Whether contents go to their places while sources are read, and the image until it is known
//! how large it will be.

use std::sync::Arc;

use uext4_blockdev::BlockDevice;
use uext4_mkfs::Layout;

use crate::error::Error;
use crate::options::BuildOptions;
use crate::output::{Draft, Output};
use crate::place::{Placed, Placer, Region};
use crate::progress::Counter;
use crate::size::{Size, with_defaults};
use crate::source::{Context, Input, Listing, SourceOptions, Store, list};
use crate::sparse::{Holes, Sparse};

/// Any size: what depends on it is not looked at.
const ANY_LEN: u64 = 1 << 30;

/// Which parts of files become holes in an image of these options.
///
/// # Errors
/// What mkfs says of the options.
pub fn holes(options: &BuildOptions, device_len: Option<u64>) -> Result<Holes, Error> {
    let wished = options.sparse.unwrap_or(match options.size {
        Size::Min => Sparse::Always,
        Size::Exact(_) | Size::Free(_) | Size::Auto => Sparse::Auto,
    });
    match wished {
        Sparse::Auto => return Ok(Holes::OfSource),
        Sparse::Never => return Ok(Holes::Filled),
        Sparse::Always => {}
    }
    let layout = match (options.size, device_len) {
        (Size::Exact(len), _) | (Size::Auto, Some(len)) => uext4_mkfs::layout(&options.mkfs, len)?,
        _ => uext4_mkfs::layout(&with_defaults(&options.mkfs), ANY_LEN)?,
    };
    let unit = layout.geometry.block_size.bytes().into();
    Ok(Holes::OfZeroes { unit })
}

/// An image that was begun.
pub enum Begun {
    /// Nothing of it is written before it is laid out.
    Later(Output),
    /// Contents of streams are.
    Now(Draft, Placer),
}

/// An image whose sources were listed.
pub enum Listed {
    /// Nothing of it is written.
    Later(Output),
    /// Contents of streams are.
    Now(Draft, Placed),
}

impl Begun {
    /// Begins to place contents, if that is possible: the image is a file, and where contents lie
    /// does not depend on how large it will be.
    ///
    /// # Errors
    /// What mkfs says of the options, [`Error::Output`], [`Error::Thread`].
    pub fn new(output: Output, options: &BuildOptions) -> Result<Self, Error> {
        // An order of their own cannot be kept while contents come in another one.
        if !output.is_file() || !options.order.is_empty() {
            return Ok(Self::Later(output));
        }
        let region = match options.size {
            Size::Exact(len) => {
                let layout = uext4_mkfs::layout(&options.mkfs, len)?;
                has_flex_groups(&layout)
                    .then(|| Region::of_layout(&layout))
                    .flatten()
            }
            Size::Auto => {
                let layout = uext4_mkfs::layout(&with_defaults(&options.mkfs), ANY_LEN)?;
                let geometry = &layout.geometry;
                let per_group = geometry.blocks_per_group.get().into();
                let first = || Region::first(&geometry.features, geometry.block_size, per_group);
                has_flex_groups(&layout).then(first).flatten()
            }
            Size::Free(_) | Size::Min => None,
        };
        let Some(region) = region else {
            return Ok(Self::Later(output));
        };
        let draft = output.begin(0)?;
        let offset = options.mkfs.extended.offset;
        let placer = Placer::new(region, Arc::clone(draft.file()), offset)?;
        let placer = placer.sharing(draft.directory());
        Ok(Self::Now(draft, placer))
    }

    /// Lists the sources, and places the contents of streams.
    ///
    /// # Errors
    /// As [`list`] and [`Placer::finish`].
    pub fn list(
        self,
        inputs: Vec<Input>,
        options: &SourceOptions,
        holes: Holes,
        counter: &Counter<'_>,
    ) -> Result<(Listing, Listed), Error> {
        let (spool_dir, leave_out) = match &self {
            Self::Later(output) => (output.directory().to_path_buf(), output.identity()),
            Self::Now(draft, _) => (draft.directory().to_path_buf(), draft.identity()),
        };
        let context = Context {
            options,
            spool_dir: &spool_dir,
            leave_out,
            counter,
            holes,
        };
        match self {
            Self::Later(output) => {
                let listing = list(inputs, &context, None)?;
                Ok((listing, Listed::Later(output)))
            }
            Self::Now(draft, mut placer) => {
                let listing = list(inputs, &context, Some(&mut placer))?;
                let is_placed = |store: &Store| matches!(store, Store::Placed { .. });
                let sources = listing.stores.iter().map(is_placed).collect();
                let placed = placer.finish()?.of(sources, &listing.tree);
                Ok((listing, Listed::Now(draft, placed)))
            }
        }
    }
}

/// Tables may lie outside of their groups only where groups are in flex groups.
fn has_flex_groups(layout: &Layout) -> bool {
    layout.geometry.log_groups_per_flex > 0
}

impl Listed {
    /// Makes an image of its own for contents that were placed where the file system needs its own
    /// blocks; they are read from the first one.
    pub fn take_back(self, listing: &mut Listing) -> Self {
        match self {
            Self::Now(draft, placed) => {
                listing.placed = Some(placed);
                Self::Later(draft.give_up())
            }
            later @ Self::Later(_) => later,
        }
    }

    /// The same error, said of the part of a disk if that is what is too small.
    pub fn said_of_disk(&self, error: Error) -> Error {
        match self {
            Self::Later(output) => output.said_of_disk(error),
            Self::Now(..) => error,
        }
    }

    /// Contents that were placed.
    pub fn placed(&self) -> Option<&Placed> {
        match self {
            Self::Now(_, placed) => Some(placed),
            Self::Later(_) => None,
        }
    }

    /// Makes the image so many bytes long.
    ///
    /// # Errors
    /// [`Error::Output`], [`Error::Device`].
    pub fn cut(self, len: u64) -> Result<(Draft, Option<Placed>), Error> {
        match self {
            Self::Later(output) => Ok((output.begin(len)?, None)),
            Self::Now(draft, placed) => {
                draft.file().set_len(len)?;
                Ok((draft, Some(placed)))
            }
        }
    }
}
