//! `help`: the page of a command, or of a topic that concerns many commands.

use std::io::{Write, stdout};

use clap::{Args, Command};

use super::Output;
use crate::failure::{Exit, Failure};
use crate::folded;
use crate::format::profile_page;
use crate::help::{TOPICS, problem_page};

/// The topic whose page is made of the table of profiles.
const PROFILES: &str = "profiles";
/// The topic whose page is made of the tables of problems.
const PROBLEMS: &str = "problems";

/// Columns of a page at most.
const WIDTH: usize = 100;

/// Explain a command or a topic
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 help mount
  uext4 help sizes
  uext4 help image | less")]
pub struct HelpArgs {
    /// A command, or one of: image, sizes, exit-codes, examples, profiles, problems
    #[arg(value_name = "COMMAND")]
    subject: Option<String>,
}

fn print(page: &str, out: &mut Output) -> Result<Exit, Failure> {
    out.write_all(folded::for_terminal(page, &stdout()).as_bytes())?;
    Ok(Exit::Success)
}

/// Prints the page.
pub fn run(args: &HelpArgs, mut command: Command, out: &mut Output) -> Result<Exit, Failure> {
    let Some(subject) = &args.subject else {
        return print(&command.render_long_help().to_string(), out);
    };
    if let Some(topic) = TOPICS.iter().find(|topic| topic.name == subject) {
        return print(topic.text, out);
    }
    if subject == PROFILES {
        return print(&profile_page(), out);
    }
    if subject == PROBLEMS {
        return print(&problem_page(), out);
    }
    if let Some(columns) = folded::columns(&stdout()) {
        command = command.term_width(columns.min(WIDTH));
    }
    command.build();
    match command.find_subcommand_mut(subject) {
        Some(page) => write!(out, "{}", page.render_long_help())?,
        None => {
            let topics = TOPICS.map(|topic| topic.name).join(", ");
            let what = format!("help {subject}: there is no such command or topic");
            let hint = format!(
                "`uext4 --help` lists the commands; the topics are {topics}, {PROFILES}, {PROBLEMS}"
            );
            return Err(Failure::new(Exit::Usage, what).hint(hint));
        }
    }
    Ok(Exit::Success)
}
