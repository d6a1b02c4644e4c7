//! The output of one file, which other threads' output does not come between.

use std::io::{self, ErrorKind, Write};
use std::mem::take;
use std::sync::mpsc::SyncSender;

use parking_lot::{Mutex, MutexGuard};
use termcolor::{Ansi, ColorSpec, WriteColor};

/// Bytes after which the output of one file is passed on before its end.
const LARGE: usize = 256 << 10;
/// Bytes up to which the output of small files waits for that of others: passing it on wakes the
/// thread that prints it, which costs more than searching a file.
const SMALL: usize = 16 << 10;

/// Held by the thread whose output it is.
pub type Turn = Mutex<()>;

/// Collects what is found in a file, or in several small ones.
#[derive(Debug)]
pub struct Found<'a> {
    bytes: Vec<u8>,
    to: SyncSender<Vec<u8>>,
    turn: &'a Turn,
    /// A part of the file's output was passed on.
    held: Option<MutexGuard<'a, ()>>,
    colored: bool,
}

impl<'a> Found<'a> {
    /// Nothing yet.
    pub fn new(to: SyncSender<Vec<u8>>, turn: &'a Turn, colored: bool) -> Self {
        Self {
            bytes: Vec::new(),
            to,
            turn,
            held: None,
            colored,
        }
    }

    /// Notes that a file is done, and passes on what was found if that is much, or if a part of it
    /// was passed on before.
    ///
    /// # Errors
    /// [`ErrorKind::BrokenPipe`] if the output takes no more.
    pub fn end_file(&mut self) -> io::Result<()> {
        match self.bytes.len() < SMALL && self.held.is_none() {
            true => Ok(()),
            false => self.pass_on(),
        }
    }

    /// Passes on what was found, before the thread does something that may take long.
    ///
    /// # Errors
    /// [`ErrorKind::BrokenPipe`] if the output takes no more.
    pub fn pass_on(&mut self) -> io::Result<()> {
        let sent = match self.bytes.is_empty() {
            true => Ok(()),
            false => self.send(),
        };
        self.held = None;
        sent
    }

    fn send(&mut self) -> io::Result<()> {
        self.held.get_or_insert_with(|| self.turn.lock());
        let sent = self.to.send(take(&mut self.bytes));
        sent.map_err(|_| ErrorKind::BrokenPipe.into())
    }
}

impl Write for Found<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() >= LARGE {
            self.send()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WriteColor for Found<'_> {
    fn supports_color(&self) -> bool {
        self.colored
    }

    fn set_color(&mut self, spec: &ColorSpec) -> io::Result<()> {
        match self.colored {
            true => Ansi::new(self).set_color(spec),
            false => Ok(()),
        }
    }

    fn reset(&mut self) -> io::Result<()> {
        match self.colored {
            true => Ansi::new(self).reset(),
            false => Ok(()),
        }
    }
}
