//! `man`: manual pages, made of the command's own definition.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Command};
use clap_mangen::Man;

use super::{Output, mount_help, output};
use crate::failure::{Exit, Failure};
use crate::help::{TOPICS, groups};

/// Write the manual pages of all commands into a directory
#[derive(Args, Debug)]
pub struct ManArgs {
    /// The directory; it is created if it does not exist
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Writes those of the whole command line.
pub fn run(args: &ManArgs, mut command_line: Command) -> Result<Exit, Failure> {
    let failed = |error| Failure::io(args.dir.display(), &error);
    fs::create_dir_all(&args.dir).map_err(failed)?;
    command_line.build();
    let write = |name: &str, page: &dyn Fn(&mut Output) -> io::Result<()>| {
        let file = fs::File::create(args.dir.join(format!("{name}.1")))?;
        let mut out = output(Box::new(file));
        page(&mut out)?;
        out.flush()
    };
    write("uext4", &|out| front_page(&command_line, out)).map_err(failed)?;
    for command in command_line.get_subcommands() {
        if command.is_hide_set() {
            continue;
        }
        let name = format!("uext4-{}", command.get_name());
        write(&name, &|out| page(command, &name, out)).map_err(failed)?;
    }
    Ok(Exit::Success)
}

/// `uext4(1)`: the commands under their headings, and the topics of `uext4 help`.
fn front_page(command: &Command, out: &mut Output) -> io::Result<()> {
    let man = Man::new(command.clone()).date("");
    man.render_title(out)?;
    man.render_name_section(out)?;
    writeln!(
        out,
        ".SH SYNOPSIS\n.B uext4\n.I COMMAND\n[OPTIONS] IMAGE [PATH]..."
    )?;
    man.render_description_section(out)?;
    writeln!(out, ".SH COMMANDS")?;
    for group in groups() {
        writeln!(out, ".SS {}", escaped(group.heading))?;
        for name in group.commands {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let page = escaped(&format!("uext4-{name}"));
            writeln!(out, ".TP\n.BR {page} (1)\n{}", escaped(&about))?;
        }
    }
    for topic in TOPICS {
        literal(
            &topic.name.replace('-', " ").to_uppercase(),
            topic.text,
            out,
        )?;
    }
    Ok(())
}

/// The page of a command.
fn page(command: &Command, name: &str, out: &mut Output) -> io::Result<()> {
    let man = Man::new(command.clone()).title(name).date("");
    man.render_title(out)?;
    let about = command.get_about().map(ToString::to_string);
    let about = about.unwrap_or_default();
    writeln!(out, ".SH NAME\n{} \\- {}", escaped(name), escaped(&about))?;
    let usage = command.clone().render_usage().to_string();
    literal("SYNOPSIS", usage.trim_start_matches("Usage: "), out)?;
    man.render_description_section(out)?;
    man.render_options_section(out)?;
    if command.get_name() == "mount" {
        writeln!(out, ".SH MOUNT OPTIONS\n.nf")?;
        mount_help::print(out, mount_help::WIDTH)?;
        writeln!(out, ".fi")?;
    }
    let end = command.get_after_help().map(ToString::to_string);
    for section in end.unwrap_or_default().split("\n\n") {
        match section.split_once(":\n") {
            Some((title, text)) => literal(&title.to_uppercase(), text, out)?,
            // The manual pages have the image options in full.
            None if section.starts_with("Image options:") => {}
            None => writeln!(out, ".PP\n{}", escaped(section))?,
        }
    }
    writeln!(out, ".SH SEE ALSO\n.BR uext4 (1)")
}

/// A section whose lines stay as they are.
fn literal(title: &str, text: &str, out: &mut Output) -> io::Result<()> {
    writeln!(out, ".SH {}\n.nf", escaped(title))?;
    for line in text.trim_end().lines() {
        writeln!(out, "{}", escaped(line))?;
    }
    writeln!(out, ".fi")
}

/// Text for roff: a backslash, a dash, and a dot or a quote that begins a line have a meaning
/// there.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_no_requests_of_roff() {
        assert_eq!(escaped(".x"), "\\&.x");
        assert_eq!(escaped("'x"), "\\&'x");
        assert_eq!(escaped(r"a\b-c"), r"a\eb\-c");
    }
}
