//! `stats DIR`: the statistics of a running mount.

use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{Event, KeyCode, KeyModifiers, poll, read};
use crossterm::style::Print;
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode, size,
};
use crossterm::{execute, queue};
use uext4_fuse::mountinfo::{self, Number};

use super::Output;
use crate::failure::{Exit, Failure};
use crate::json::Json;
use crate::listener::place_of_socket;
use crate::snapshot::Snapshot;

/// How long the daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How it is shown.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// As JSON.
    pub json: bool,
    /// As Prometheus reads it.
    pub prometheus: bool,
    /// Again and again, with so much time between.
    pub watch: Option<Duration>,
}

/// Shows the statistics of the mount at, or above, `dir`.
///
/// # Errors
/// Exit 8 if none of ours is there, or it does not answer.
pub fn show(dir: &Path, form: Form, out: &mut Output) -> Result<Exit, Failure> {
    if let (Some(interval), true) = (form.watch, io::stdout().is_terminal()) {
        return watch(dir, interval);
    }
    let mut before: Option<(Snapshot, Instant)> = None;
    loop {
        let page = ask(dir)?;
        let (snapshot, now) = (Snapshot::parse(&page), Instant::now());
        if form.prometheus {
            out.write_all(page.as_bytes())?;
        } else if form.json {
            let mut json = Json::new();
            snapshot.json(&mut json);
            out.write_all(json.as_bytes())?;
        } else {
            for line in since(&snapshot, now, before.as_ref()) {
                writeln!(out, "{line}")?;
            }
            for line in snapshot.details() {
                writeln!(out, "{line}")?;
            }
        }
        out.flush()?;
        let Some(interval) = form.watch else {
            return Ok(Exit::Success);
        };
        before = Some((snapshot, now));
        thread::sleep(interval);
    }
}

fn since(now: &Snapshot, at: Instant, before: Option<&(Snapshot, Instant)>) -> Vec<String> {
    let before = before.map(|(before, then)| (before, (at - *then).as_secs_f64().max(1e-3)));
    now.lines(before)
}

/// The page of a mount.
fn ask(dir: &Path) -> Result<String, Failure> {
    let found = std::fs::metadata(dir).map_err(|error| Failure::io(dir.display(), &error))?;
    let device = found.dev();
    let number = Number {
        major: rustix::fs::major(device),
        minor: rustix::fs::minor(device),
    };
    let socket = place_of_socket(number);
    let asked = UnixStream::connect(&socket).and_then(|mut stream| {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"metrics\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        Ok(page)
    });
    asked.map_err(|error| {
        let dir = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
        match mountinfo::at(&dir) {
            Ok(Some(_)) => {
                let (dir, socket) = (dir.display(), socket.display());
                let what = match error.kind() {
                    io::ErrorKind::NotFound => format!(
                        "{dir}: its daemon has no socket {socket}: it could not make one (a \
                         read-only /run), or it is another user's mount"
                    ),
                    _ => format!("{dir}: its daemon does not answer: {error}"),
                };
                Failure::new(Exit::CouldNot, what).hint(
                    "only the user who mounted it may ask; `ps` shows whether the daemon runs",
                )
            }
            _ => {
                let what = format_args!("{}: not mounted by uext4", dir.display());
                Failure::new(Exit::CouldNot, what).hint("`findmnt -t fuse.uext4` lists what is")
            }
        }
    })
}

/// The terminal as a screen of ours, until it is dropped.
struct Screen;

impl Screen {
    fn new() -> io::Result<Self> {
        enable_raw_mode()?;
        let screen = Self;
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    fn draw(&self, lines: &[String]) -> io::Result<()> {
        let (width, height) = size()?;
        let mut out = io::stdout();
        for (row, line) in (0..height).zip(lines) {
            let shown: String = line.chars().take(width.into()).collect();
            let clear = Clear(ClearType::UntilNewLine);
            queue!(out, MoveTo(0, row), Print(shown), clear)?;
        }
        queue!(out, Clear(ClearType::FromCursorDown))?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // There is nothing to do about a terminal that is gone.
        _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
        _ = disable_raw_mode();
    }
}

/// Shows it on the screen until a key says that is enough.
fn watch(dir: &Path, interval: Duration) -> Result<Exit, Failure> {
    let screen = Screen::new()?;
    let mut before: Option<(Snapshot, Instant)> = None;
    loop {
        let (snapshot, now) = (Snapshot::parse(&ask(dir)?), Instant::now());
        let mut lines = since(&snapshot, now, before.as_ref());
        lines.push("q ends".to_owned());
        screen.draw(&lines)?;
        before = Some((snapshot, now));
        let until = now + interval;
        while poll(until.saturating_duration_since(Instant::now()))? {
            match read()? {
                Event::Key(key) if ends(key.code, key.modifiers) => return Ok(Exit::Success),
                Event::Resize(..) => screen.draw(&lines)?,
                _ => {}
            }
        }
    }
}

fn ends(code: KeyCode, modifiers: KeyModifiers) -> bool {
    let is_control_c = code == KeyCode::Char('c') && modifiers.contains(KeyModifiers::CONTROL);
    is_control_c || matches!(code, KeyCode::Char('q') | KeyCode::Esc)
}
