//! `script`: many changes in one opening.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use clap::{Args, Parser};
use uext4::Filesystem;

use super::change::{self, Operation, Target};
use super::{
    Output, bdi, cat, chmod, chown, fallocate, getfattr, ln, ls, mkdir, mv, put, rm, setfattr,
    stat, touch, truncate,
};
use crate::args::WriteArgs;
use crate::failure::{Complaints, Exit, Failure};
use crate::words::words;

/// Bytes of a line: more than any command needs.
const LINE_MAX: u64 = 1 << 20;

/// Run many commands in one opening of the image
///
/// One command a line, as on the command line but without the program and the image: "mkdir -p
/// /srv". Words are quoted as in a shell; # begins a comment. put, mkdir, rm, mv, ln, chmod, chown,
/// setfattr, getfattr, truncate, fallocate, touch, ls, cat, stat, stats, which tells what waits to be written, and sync, which makes durable what
/// was done so far. "put -" wants the script in a file. The first error ends it, with the number of its line; what was done before
/// stays.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 script disk.img < changes.txt
  printf 'mkdir /srv\\nput site /srv/www\\nls -l /srv\\n' | uext4 script disk.img
  uext4 script --keep-going -f changes.txt disk.img")]
pub struct ScriptArgs {
    #[command(flatten)]
    image: WriteArgs,
    /// Commands from this file in place of standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Go on after errors
    #[arg(long)]
    keep_going: bool,
}

/// A line.
#[derive(Debug, Parser)]
#[command(
    no_binary_name = true,
    disable_help_subcommand = true,
    max_term_width = 100
)]
#[command(name = "script")]
enum Line {
    Put(put::PutArgs),
    Mkdir(mkdir::MkdirArgs),
    Rm(rm::RmArgs),
    Mv(mv::MvArgs),
    Ln(ln::LnArgs),
    Chmod(chmod::ChmodArgs),
    Chown(chown::ChownArgs),
    Setfattr(setfattr::SetfattrArgs),
    Getfattr(getfattr::GetfattrArgs),
    Truncate(truncate::TruncateArgs),
    Fallocate(fallocate::FallocateArgs),
    Touch(touch::TouchArgs),
    Ls(ls::LsArgs),
    Cat(cat::CatArgs),
    Stat(stat::StatArgs),
    Stats(bdi::BdiArgs),
    /// Make all durable that was done so far
    Sync,
}

/// Runs them.
pub fn run(args: &ScriptArgs, out: &mut Output) -> Result<Exit, Failure> {
    let input: Box<dyn Read> = match &args.file {
        None => Box::new(std::io::stdin().lock()),
        Some(path) => {
            let file = std::fs::File::open(path);
            Box::new(file.map_err(|error| Failure::io(path.display(), &error))?)
        }
    };
    let fs = crate::open::open_rw(&args.image)?;
    let done = run_lines(args, &fs, &mut BufReader::new(input), out);
    change::close(&fs, &args.image.place.image, done)
}

fn run_lines(
    args: &ScriptArgs,
    fs: &Filesystem,
    input: &mut dyn BufRead,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let mut worst = Exit::Success;
    let mut bytes = Vec::new();
    for number in 1.. {
        bytes.clear();
        let read = input.take(LINE_MAX).read_until(b'\n', &mut bytes);
        let read = read.map_err(|error| Failure::io("the script", &error))?;
        if read == 0 {
            break;
        }
        let mut complaints = Complaints::of_line(number);
        let cut = bytes.len() as u64 == LINE_MAX;
        let done = match cut {
            true => Err(Failure::new(Exit::Usage, "the line is too long")),
            false => run_line(args, fs, &bytes, &mut complaints, out),
        };
        match done {
            Ok(exit) => worst = worst.max(exit),
            Err(failure) => complaints.failure(failure)?,
        }
        worst = worst.max(complaints.exit());
        // What was shown is seen before the next is done.
        out.flush()?;
        if worst != Exit::Success && (!args.keep_going || cut) {
            break;
        }
    }
    Ok(worst)
}

fn run_line(
    args: &ScriptArgs,
    fs: &Filesystem,
    line: &[u8],
    complaints: &mut Complaints,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let words = words(line).map_err(|what| Failure::new(Exit::Usage, what))?;
    if words.is_empty() {
        return Ok(Exit::Success);
    }
    let words = words.into_iter().map(OsString::from_vec);
    let line = match Line::try_parse_from(words) {
        Ok(line) => line,
        Err(told) if told.use_stderr() => {
            let text = told.render().to_string();
            let what = text.trim_start_matches("error: ").trim_end();
            return Err(Failure::new(Exit::Usage, what));
        }
        Err(help) => {
            write!(out, "{}", help.render())?;
            return Ok(Exit::Success);
        }
    };
    let operation: &dyn Operation = match &line {
        Line::Put(line) => line,
        Line::Mkdir(line) => line,
        Line::Rm(line) => line,
        Line::Mv(line) => line,
        Line::Ln(line) => line,
        Line::Chmod(line) => line,
        Line::Chown(line) => line,
        Line::Setfattr(line) => line,
        Line::Truncate(line) => line,
        Line::Fallocate(line) => line,
        Line::Touch(line) => line,
        // A look that writes nothing: it is to find what is dirty.
        Line::Stats(line) => return bdi::run(line, fs, out),
        Line::Getfattr(_) | Line::Ls(_) | Line::Cat(_) | Line::Stat(_) | Line::Sync => {
            return read(args, fs, &line, out);
        }
    };
    operation.apply(&mut Target {
        fs,
        image: &args.image.place.image,
        complaints,
        is_script_on_stdin: args.file.is_none(),
    })?;
    Ok(Exit::Success)
}

/// Commands that read what lies on the device: everything goes there first.
fn read(
    args: &ScriptArgs,
    fs: &Filesystem,
    line: &Line,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let synced = fs.sync();
    synced.map_err(|error| Failure::engine(args.image.place.image.display(), &error))?;
    match line {
        Line::Getfattr(line) => getfattr::run(line, fs, out),
        Line::Ls(line) => ls::run(line, fs, out),
        Line::Cat(line) => cat::run(line, fs, out),
        Line::Stat(line) => stat::run(line, fs, out),
        _ => Ok(Exit::Success),
    }
}
