//! Taking bytes in, step by step as throttling lets them pass.

use std::time::Duration;

use crate::balance::Manner;
use crate::file::File;
use crate::stats::add;
use crate::throttle::{PAGE_SIZE, Task, Verdict};
use crate::writer::Writer;
use crate::{Error, MappingError, OFFSET_MAX};

/// Bytes to be taken in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write<'a> {
    /// The byte of the file at which they begin.
    pub(crate) offset: u64,
    pub(crate) data: &'a [u8],
    /// Bytes of the file before the write.
    pub(crate) old_size: u64,
}

/// What became of a write that did not sleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paced {
    /// Bytes taken in.
    pub taken: usize,
    /// How long the writer is to wait: before it is answered, or, if not all was taken, before it
    /// comes with the rest.
    pub pause: Duration,
}

impl<E: MappingError> File<E> {
    pub(crate) fn write(
        &self,
        writer: &mut Writer,
        write: Write<'_>,
        manner: Manner,
    ) -> Result<Paced, Error<E>> {
        let Write { offset, data, .. } = write;
        let len = data.len() as u64;
        if offset.checked_add(len).is_none_or(|end| end > OFFSET_MAX) {
            return Err(Error::OutOfRange { offset, len });
        }
        self.shared.pay(writer)?;
        let mut done = 0;
        let mut waits = match manner {
            Manner::Sleep => None,
            Manner::Report => self.shared.go_on(writer)?,
        };
        while done < data.len() && waits.is_none() {
            let rest = Write {
                offset: offset + done as u64,
                data: &data[done..],
                ..write
            };
            match self.write_step(writer, rest, manner) {
                Ok((taken, pause)) => {
                    done += taken;
                    waits = pause;
                }
                Err((taken, error)) if done + taken == 0 => return Err(error),
                Err((taken, _)) => {
                    // What was taken in is dirty. If it cannot be written, the next sync reports
                    // that; the writer gets the error with its next write, unless the device has
                    // recovered by then.
                    done += taken;
                    break;
                }
            }
        }
        self.shared.kick_if_needed();
        Ok(Paced {
            taken: done,
            pause: waits.unwrap_or_default(),
        })
    }

    /// Bytes at `at` that are taken in at once, of `len`: as many as throttling lets pass without
    /// another look, up to where folios are cut, so that no block is written in two halves.
    fn step_len(&self, writer: &mut Writer, at: u64, len: u64, now: Duration) -> u64 {
        let (shape, chunk, gate) = (self.shared.shape, self.shared.chunk, &self.shared.gate);
        let len = len.min(chunk - at % chunk);
        let task = &writer.known(gate).task;
        let allowed = gate.bdi.allowance(task, now).saturating_mul(PAGE_SIZE);
        let end = shape.floor(at.saturating_add(allowed));
        let end = end.max(shape.floor(at) + shape.block());
        len.min(end - at)
    }

    /// Takes some in, as much as is done under one lock, and does what throttling says before and
    /// after. If something fails, returns how much was taken nevertheless.
    fn write_step(
        &self,
        writer: &mut Writer,
        write: Write<'_>,
        manner: Manner,
    ) -> Result<(usize, Option<Duration>), (usize, Error<E>)> {
        let at = write.offset;
        let shared = &self.shared;
        let now = shared.gate.now();
        let len = self.step_len(writer, at, write.data.len() as u64, now);
        let blocks = shared.shape.ceil(at + len) - shared.shape.floor(at);
        let admitted = shared.admit(writer, blocks.div_ceil(PAGE_SIZE), now, manner);
        if let Some(pause) = admitted.map_err(|error| (0, error))? {
            return Ok((0, Some(pause)));
        }
        shared.make_room(len);
        let write = Write {
            // OK to truncate: at most as long as `data`.
            data: &write.data[..len as usize],
            ..write
        };
        let task = &mut writer.known(&shared.gate).task;
        let (taken, verdict) = self.take_in(task, write, now).map_err(|error| (0, error))?;
        let pause = shared.pace(writer, verdict, manner);
        Ok((taken, pause.map_err(|error| (taken, error))?))
    }

    /// Takes bytes in that were admitted, up to the first block that must be read, or past it if
    /// it is the first of all. Returns how many, and what throttling says to it.
    fn take_in(
        &self,
        task: &mut Task,
        write: Write<'_>,
        now: Duration,
    ) -> Result<(usize, Verdict), Error<E>> {
        loop {
            let mut state = self.state.write();
            let before = state.pages.dirty;
            let written = state.pages.write(write.offset, write.data, write.old_size);
            match written.missing {
                Some(block) if written.len == 0 => {
                    self.finish(state, before);
                    // What was read must not be made room for, or it might go before it is used.
                    if let Err(error) = self.load_block(block) {
                        // What was admitted is given back.
                        self.shared.gate.bdi.dirtied(task, 0, now);
                        return Err(error);
                    }
                }
                _ => {
                    let dirtied = state.pages.dirty - before;
                    add(&self.shared.counters.dirtied, dirtied);
                    let verdict = self.settle_written(&mut state, before, task, now);
                    self.let_go(state);
                    return Ok((written.len, verdict));
                }
            }
        }
    }
}
