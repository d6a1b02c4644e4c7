//! `grep`: lines of files in images that match a pattern.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use grep_printer::{ColorSpecs, JSONBuilder, StandardBuilder, SummaryBuilder, SummaryKind};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, SearcherBuilder};
use parking_lot::Mutex;
use uext4::FollowLast;

use super::{Output, bytes};
use crate::args::{ImageArgs, ImagesArgs, long_help, parse_size};
use crate::color::ColorArgs;
use crate::failure::{Complaints, Exit, Failure};
use crate::grep::{Globs, Search, Shown, Tree};
use crate::open;
use crate::paths;

/// Bytes of the longest line.
const LINE_MAX: usize = 64 << 20;

/// Search the contents of files for a pattern
///
/// PATTERN is a regular expression of the Rust crate regex, as ripgrep takes it. All regular files
/// below a directory are searched where they lie in the image, hidden ones too; files with zero
/// bytes are taken for binary and left out. With several images, the name of the image stands
/// before the path: IMAGE:PATH. Files come in any order. What cannot be read is reported, and the
/// search goes on.
///
/// The exit codes are those of grep(1): 0 if a line matches, 1 if none does, 2 after an error, also
/// one with a part of the work; with -q 0 if a line matches, whatever else happens.
#[derive(Args, Debug)]
#[command(disable_help_flag = true, arg = long_help())]
#[command(after_help = "Examples:
  uext4 grep -n 'PermitRootLogin' disk.img --in /etc
  uext4 grep -il 'BEGIN .*PRIVATE KEY' *.img
  uext4 grep -w unsafe disk.img -g '*.rs' -g '!target' -C 2
  uext4 grep --json password disk.img | jq -r 'select(.type == \"match\") | .data.path.text'")]
pub struct GrepArgs {
    /// Regular expression
    #[arg(value_name = "PATTERN", allow_hyphen_values = true)]
    pattern: String,
    #[command(flatten)]
    images: ImagesArgs,
    /// Search below PATH in the image
    #[arg(
        long = "in",
        value_name = "PATH",
        default_value = "/",
        hide_default_value = true
    )]
    path: PathBuf,
    /// Ignore case
    #[arg(short, long)]
    ignore_case: bool,
    /// Ignore case if PATTERN has no capital letter
    #[arg(short = 'S', long)]
    smart_case: bool,
    /// Match whole words only
    #[arg(short, long)]
    word_regexp: bool,
    /// PATTERN is plain text
    #[arg(short = 'F', long)]
    fixed_strings: bool,
    /// Show the lines that do not match
    #[arg(short = 'v', long)]
    invert_match: bool,
    /// Show line numbers
    #[arg(short = 'n', long)]
    line_number: bool,
    /// Do not show paths
    #[arg(short = 'h', long)]
    no_filename: bool,
    /// Print the paths of the files with a match
    #[arg(short = 'l', long, conflicts_with_all = ["count", "json"])]
    files_with_matches: bool,
    /// Print the number of matching lines of each file that has any
    #[arg(short, long, conflicts_with = "json")]
    count: bool,
    /// Stop in each file after N matching lines
    #[arg(short, long, value_name = "N")]
    max_count: Option<u64>,
    /// Show N lines after each match
    #[arg(
        short = 'A',
        long,
        value_name = "N",
        default_value_t = 0,
        hide_default_value = true
    )]
    after_context: usize,
    /// Show N lines before each match
    #[arg(
        short = 'B',
        long,
        value_name = "N",
        default_value_t = 0,
        hide_default_value = true
    )]
    before_context: usize,
    /// Show N lines before and after each match
    #[arg(
        short = 'C',
        long,
        value_name = "N",
        default_value_t = 0,
        hide_default_value = true
    )]
    context: usize,
    /// Show only what matches, each match on a line
    #[arg(short, long)]
    only_matching: bool,
    /// Print nothing, and end at the first match
    #[arg(short, long)]
    quiet: bool,
    /// Search only files that match GLOB; with ! before it, leave them out; the last one decides
    #[arg(short, long, value_name = "GLOB")]
    glob: Vec<String>,
    /// Leave out files of more than SIZE bytes
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    max_filesize: Option<u64>,
    /// Search binary files as if they were text
    #[arg(short = 'a', long)]
    text: bool,
    /// Print JSON messages, one a line, in the format of `rg --json`
    #[arg(long)]
    json: bool,
    /// Order of the files: path (slower: by one thread), none
    #[arg(long, value_name = "ORDER", value_enum, default_value_t = Sort::None)]
    #[arg(hide_default_value = true, hide_possible_values = true)]
    sort: Sort,
    #[command(flatten)]
    color: ColorArgs,
}

/// In which order files come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sort {
    Path,
    None,
}

/// Searches the images one after the other.
pub fn run(args: &GrepArgs, out: &mut Output) -> Result<Exit, Failure> {
    let usage = |error| Failure::new(Exit::Usage, error);
    let search = Search {
        matcher: args.matcher().map_err(usage)?,
        searcher: args.searcher(),
        shown: args.shown(),
        colored: args.color.is_on(),
        globs: Globs::new(&args.glob).map_err(usage)?,
        max_filesize: args.max_filesize,
        text: args.text,
        first_only: args.quiet,
        sorted: args.sort == Sort::Path,
    };
    let complaints = Mutex::new(Complaints::new());
    let mut matched = false;
    for image in args.images.each() {
        match args.search(&search, &image, out, &complaints) {
            Ok(found) => matched |= found,
            Err(failure) => complaints.lock().failure(failure)?,
        }
        if matched && args.quiet {
            return Ok(Exit::Success);
        }
    }
    let ended = match matched {
        true => Exit::Success,
        false => Exit::NoMatch,
    };
    Ok(complaints.into_inner().exit().max(ended))
}

impl GrepArgs {
    fn search(
        &self,
        search: &Search,
        image: &ImageArgs,
        out: &mut Output,
        complaints: &Mutex<Complaints>,
    ) -> Result<bool, Failure> {
        let fs = open::open(image)?;
        let start = bytes(self.path.as_os_str());
        let top = paths::resolve(&fs, start, FollowLast::Yes)?;
        let tree = Tree {
            fs: &fs,
            prefix: &self.images.prefix(image),
            start,
            top: &top,
        };
        search.run(tree, out, complaints)
    }

    fn matcher(&self) -> Result<RegexMatcher, String> {
        let mut builder = RegexMatcherBuilder::new();
        builder
            .multi_line(true)
            .case_insensitive(self.ignore_case)
            .case_smart(self.smart_case)
            .word(self.word_regexp)
            .fixed_strings(self.fixed_strings)
            .line_terminator(Some(b'\n'));
        if !self.text {
            builder.ban_byte(Some(0));
        }
        builder
            .build(&self.pattern)
            .map_err(|error| format!("PATTERN: {error}"))
    }

    fn searcher(&self) -> SearcherBuilder {
        let mut builder = SearcherBuilder::new();
        let binary = match self.text {
            true => BinaryDetection::none(),
            false => BinaryDetection::quit(0),
        };
        builder
            .line_number(self.line_number || self.json)
            .invert_match(self.invert_match)
            .after_context(self.after_context.max(self.context))
            .before_context(self.before_context.max(self.context))
            .max_matches(self.max_count)
            .heap_limit(Some(LINE_MAX))
            .binary_detection(binary);
        builder
    }

    fn shown(&self) -> Shown {
        let colors = ColorSpecs::default_with_color();
        let kind = match () {
            () if self.quiet => SummaryKind::QuietWithMatch,
            () if self.count => SummaryKind::Count,
            () if self.files_with_matches => SummaryKind::PathWithMatch,
            () if self.json => return Shown::Json(JSONBuilder::new()),
            () => {
                let mut builder = StandardBuilder::new();
                builder
                    .color_specs(colors)
                    .path(!self.no_filename)
                    .only_matching(self.only_matching);
                return Shown::Lines(Box::new(builder));
            }
        };
        let mut builder = SummaryBuilder::new();
        builder
            .color_specs(colors)
            .kind(kind)
            .path(!self.no_filename);
        Shown::Summary(Box::new(builder))
    }
}
