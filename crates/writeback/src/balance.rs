//! A writer does what throttling says: it goes on, sleeps, writes pages itself, or fails.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use crate::file::Cache;
use crate::stats::add;
use crate::throttle::{PAGE_SIZE, Verdict};
use crate::waiters::{Cancel, Sleep};
use crate::writer::{Outcome, Owed, Writer};
use crate::{Error, MappingError, trace};

/// The longest nap where no flusher runs and others write what there is to write.
const NAP: Duration = Duration::from_millis(5);
/// Looks where no flusher runs, nothing is left to write, and time seems to stand still.
const LOOKS: u32 = 3;
/// The shortest pause that a caller is asked to make.
const REPORT_MIN: Duration = Duration::from_millis(1);

/// What a writer does about a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// The writer sleeps through it.
    Sleep,
    /// The pause is returned to the caller.
    Report,
}

/// What throttling is asked when a verdict has been carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    /// Whether so many pages may become dirty.
    Admit(u64),
    /// Whether a writer that made some dirty has waited long enough.
    Resume,
}

/// One throttling, from its first verdict to the last.
#[derive(Clone, Copy, Debug)]
struct Throttling {
    ask: Ask,
    manner: Manner,
    /// Failed passes of flushers when it began.
    failed: u64,
    /// How often all writers had been called off when it began.
    cancelled: u64,
    /// Verdicts that were carried out.
    rounds: u32,
    began: Duration,
    /// From the end of the one before to the beginning of this one.
    think: Duration,
}

/// What became of a verdict.
enum Step {
    Done {
        written: u64,
    },
    /// The caller is to wait so long.
    Report(Duration),
}

impl<E: MappingError> Cache<E> {
    /// Asks before up to `pages` pages become dirty. Returns how long the caller is to wait
    /// first, if it does not sleep; nothing is admitted then.
    ///
    /// Fails with [`Error::Cancelled`], [`Error::Stalled`]; what a mapping said, when nothing could
    /// be written.
    pub(crate) fn admit(
        &self,
        writer: &mut Writer,
        pages: u64,
        now: Duration,
        manner: Manner,
    ) -> Result<Option<Duration>, Error<E>> {
        // First, so that what becomes free after the verdict does not count as seen.
        let freed = self.gate.limits.waiters.freed();
        let task = &mut writer.known(&self.gate).task;
        match self.gate.bdi.admit(task, pages, now) {
            Verdict::Go => {
                // What it was asked to wait is over.
                writer.known(&self.gate).reported = None;
                Ok(None)
            }
            verdict => self.throttle(writer, verdict, freed, Ask::Admit(pages), manner),
        }
    }

    /// Does what was said after pages became dirty. Returns how long the caller is to wait, if it
    /// does not sleep.
    pub(crate) fn pace(
        &self,
        writer: &mut Writer,
        verdict: Verdict,
        manner: Manner,
    ) -> Result<Option<Duration>, Error<E>> {
        if verdict == Verdict::Go {
            return Ok(None);
        }
        let freed = self.gate.limits.waiters.freed();
        let result = self.throttle(writer, verdict, freed, Ask::Resume, manner);
        // The caller is informed how much was taken in, which was all perhaps.
        let owed = match &result {
            Err(Error::Stalled) => Some(Owed::Stalled),
            Err(Error::Mapping(_)) => Some(Owed::Failed),
            _ => None,
        };
        let written = self.counters.written.load(Relaxed);
        writer.known(&self.gate).owed = owed.map(|owed| (owed, written));
        result
    }

    /// What a write before this one should have reported, unless the device gets on again.
    pub(crate) fn pay(&self, writer: &mut Writer) -> Result<(), Error<E>> {
        let owed = writer.known(&self.gate).owed.take();
        let Some((owed, written)) = owed else {
            return Ok(());
        };
        match owed {
            _ if self.counters.written.load(Relaxed) != written => Ok(()),
            Owed::Stalled => Err(Error::Stalled),
            Owed::Failed => self.flushers.error().map_or(Ok(()), Err),
        }
    }

    /// Goes on with what the caller was informed last: reports how long it is still to wait.
    pub(crate) fn go_on(&self, writer: &mut Writer) -> Result<Option<Duration>, Error<E>> {
        let now = self.gate.now();
        let known = writer.known(&self.gate);
        let Some(reported) = known.reported else {
            return Ok(None);
        };
        if now < reported.until {
            return Ok(Some((reported.until - now).max(REPORT_MIN)));
        }
        if !reported.resumes {
            return Ok(None);
        }
        let verdict = self.gate.bdi.resumed(&mut known.task, 0, now);
        let waits = self.pace(writer, verdict, Manner::Report);
        // An error is reported now, and not once more with the next write.
        writer.known(&self.gate).owed = None;
        let waits = waits?;
        if waits.is_none() {
            writer.known(&self.gate).reported = None;
        }
        Ok(waits)
    }

    fn throttle(
        &self,
        writer: &mut Writer,
        mut verdict: Verdict,
        mut freed: u64,
        ask: Ask,
        manner: Manner,
    ) -> Result<Option<Duration>, Error<E>> {
        add(&self.counters.throttled, 1);
        let known = writer.known(&self.gate);
        let (reported, began) = (known.reported.take(), self.gate.now());
        let think = match known.went_on {
            Duration::ZERO => Duration::ZERO,
            when => began.saturating_sub(when),
        };
        let mut throttling = Throttling {
            ask,
            manner,
            failed: reported.map_or_else(|| self.flushers.failed(), |reported| reported.failed),
            cancelled: self.gate.cancelled.load(SeqCst),
            rounds: reported.is_some().into(),
            began,
            think,
        };
        loop {
            let written = match self.carry_out(writer, verdict, freed, &throttling) {
                Ok(Step::Done { written }) => written,
                Ok(Step::Report(pause)) => return Ok(Some(pause)),
                Err(error) => {
                    let known = writer.known(&self.gate);
                    self.gate.bdi.exited(&mut known.task, self.gate.now());
                    return Err(error);
                }
            };
            throttling.rounds = throttling.rounds.saturating_add(1);
            freed = self.gate.limits.waiters.freed();
            let (known, now) = (writer.known(&self.gate), self.gate.now());
            known.went_on = now;
            verdict = match ask {
                Ask::Admit(pages) => self.gate.bdi.admit(&mut known.task, pages, now),
                Ask::Resume => self.gate.bdi.resumed(&mut known.task, written, now),
            };
            if verdict == Verdict::Go || self.is_alone(&throttling) {
                return Ok(None);
            }
        }
    }

    /// No thread but the writer could do anything, there is nothing to do, and it has waited.
    fn is_alone(&self, throttling: &Throttling) -> bool {
        throttling.ask == Ask::Resume
            && throttling.rounds > LOOKS
            && !self.flushers.are_running()
            && self.counters.unwritten() == 0
    }

    fn carry_out(
        &self,
        writer: &mut Writer,
        verdict: Verdict,
        freed: u64,
        throttling: &Throttling,
    ) -> Result<Step, Error<E>> {
        let is_waiting = matches!(verdict, Verdict::Await { .. });
        let at_most = match verdict {
            Verdict::Go => return Ok(Step::Done { written: 0 }),
            Verdict::Failed => return Err(Error::Stalled),
            Verdict::Write { pages } => {
                self.check(throttling, writer.cancel(), true)?;
                let written = self.write_pages(pages)?;
                return Ok(Step::Done { written });
            }
            Verdict::Pause(at_most) | Verdict::Await { at_most } => at_most,
        };
        self.check(throttling, writer.cancel(), is_waiting)?;
        if !self.flushers.are_running() {
            if self.write_pages(1)? == 0 {
                std::thread::sleep(at_most.min(NAP));
            }
            return Ok(Step::Done { written: 0 });
        }
        match is_waiting {
            true => self.gate.limits.wake_flushers(),
            false => self.kick_if_needed(),
        }
        let paused = self.gate.now().saturating_sub(throttling.began);
        trace::balance_dirty_pages(&self.gate, at_most, paused, throttling.think);
        if throttling.manner == Manner::Report {
            let pause = at_most.max(REPORT_MIN);
            writer.known(&self.gate).reported = Some(Outcome {
                until: self.gate.now().saturating_add(pause),
                resumes: throttling.ask == Ask::Resume,
                failed: throttling.failed,
            });
            return Ok(Step::Report(pause));
        }
        let sleep = Sleep {
            cache: self.gate.number,
            pages: match throttling.ask {
                Ask::Admit(pages) if is_waiting => pages.max(1),
                _ => u64::from(is_waiting),
            },
            freed,
            at_most,
        };
        let is_over = || !self.flushers.are_running() || self.is_over(throttling, is_waiting);
        let waiters = &self.gate.limits.waiters;
        waiters.sleep(writer.slot(), sleep, writer.cancel(), is_over);
        if let Err(error) = self.check(throttling, writer.cancel(), is_waiting) {
            // It may have been woken for what another can use.
            waiters.free(self.gate.number, sleep.pages);
            return Err(error);
        }
        Ok(Step::Done { written: 0 })
    }

    /// Whether the throttling ends with an error. A pause that a writer makes once is not worth
    /// one.
    fn is_over(&self, throttling: &Throttling, is_waiting: bool) -> bool {
        let failed = self.flushers.failed() != throttling.failed;
        self.gate.cancelled.load(SeqCst) != throttling.cancelled
            || failed && (is_waiting || throttling.rounds > 0)
    }

    fn check(
        &self,
        throttling: &Throttling,
        cancel: Option<&Cancel>,
        is_waiting: bool,
    ) -> Result<(), Error<E>> {
        if cancel.is_some_and(Cancel::is_cancelled) {
            return Err(Error::Cancelled);
        }
        if !self.is_over(throttling, is_waiting) {
            return Ok(());
        }
        match self.flushers.error() {
            Some(error) if self.flushers.failed() != throttling.failed => Err(error),
            _ => Err(Error::Cancelled),
        }
    }

    /// Writes about so many pages, or what there is that no thread is at; returns how many it
    /// was. Each file has one turn.
    fn write_pages(&self, pages: u64) -> Result<u64, Error<E>> {
        let (mut written, mut failed) = (0, None);
        let bound = self.dirty.next_seq();
        while written < pages.saturating_mul(PAGE_SIZE) {
            match self.flush_any(bound) {
                Some(Ok(bytes)) => written += bytes,
                Some(Err(Error::Gone)) => {}
                Some(Err(error)) => {
                    self.flushers.set_error(&error);
                    failed = Some(error);
                }
                None => break,
            }
        }
        match failed {
            Some(error) if written == 0 && !self.may_get_on() => Err(error),
            _ => Ok(written / PAGE_SIZE),
        }
    }
}
