//! Colors of names, as `LS_COLORS` has them; dircolors(5) describes the variable.

use std::borrow::Cow;
use std::io::IsTerminal;

use clap::{Args, ValueEnum};
use lscolors::{Indicator, LsColors};
use uext4::Inode;
use uext4_ondisk::inode::FileType;

use crate::show::escaped;

/// Whether names are colored.
#[derive(Args, Clone, Copy, Debug)]
pub struct ColorArgs {
    /// Color the output, names as LS_COLORS says: auto (on a terminal without NO_COLOR), always,
    /// never
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = When::Auto)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "always")]
    #[arg(hide_default_value = true, hide_possible_values = true)]
    color: When,
}

/// When names are colored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum When {
    Auto,
    Always,
    Never,
}

/// The colors of names; none if they are printed plain.
#[derive(Debug)]
pub struct Colors(Option<LsColors>);

impl ColorArgs {
    /// Whether there are colors; looks at the environment and at standard output.
    pub fn is_on(self) -> bool {
        match self.color {
            When::Always => true,
            When::Never => false,
            When::Auto => {
                let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
                !no_color && std::io::stdout().is_terminal()
            }
        }
    }

    /// The colors of names.
    pub fn read(self) -> Colors {
        Colors(
            self.is_on()
                .then(|| LsColors::from_env().unwrap_or_default()),
        )
    }
}

impl Colors {
    /// A name, escaped, in the color of its inode.
    pub fn paint(&self, name: &[u8], inode: &Inode) -> String {
        let shown = escaped(name);
        let Some(colors) = &self.0 else {
            return shown;
        };
        let style = match indicator(inode) {
            // By the suffix of the name.
            Indicator::RegularFile => colors.style_for_str(&String::from_utf8_lossy(name)),
            indicator => colors.style_for_indicator(indicator),
        };
        let style = style.map(|style| style.to_nu_ansi_term_style());
        let painted = style.map(|style| style.paint(Cow::from(&*shown)).to_string());
        painted.unwrap_or(shown)
    }
}

/// The kind of file, with the precedence that ls gives to the bits of its mode.
fn indicator(inode: &Inode) -> Indicator {
    let has = |bits: u16| inode.mode & bits != 0;
    match inode.file_type {
        FileType::Directory if has(0o1000) && has(0o002) => Indicator::StickyAndOtherWritable,
        FileType::Directory if has(0o002) => Indicator::OtherWritable,
        FileType::Directory if has(0o1000) => Indicator::Sticky,
        FileType::Directory => Indicator::Directory,
        FileType::Regular if has(0o4000) => Indicator::Setuid,
        FileType::Regular if has(0o2000) => Indicator::Setgid,
        FileType::Regular if has(0o111) => Indicator::ExecutableFile,
        FileType::Regular => Indicator::RegularFile,
        FileType::Symlink => Indicator::SymbolicLink,
        FileType::Fifo => Indicator::FIFO,
        FileType::Socket => Indicator::Socket,
        FileType::BlockDevice => Indicator::BlockDevice,
        FileType::CharDevice => Indicator::CharacterDevice,
    }
}
