//! What people do with a mount: a clone and its status, a program that is compiled.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::Asked;
use crate::figures::Unit;
use crate::input::Input;
use crate::subject::{Mounted, Subject, run};
use crate::tasks::{Report, ended, forget, seconds};

/// Files of the program.
const SOURCES: usize = 200;
/// Functions of each.
const FUNCTIONS: usize = 40;

/// A repository cloned, and its status: at first, when git reads what was written within the tick
/// of its index; with the names in the kernel's caches; and without.
pub fn git(subject: Subject, _: &Asked, input: &Input, report: Report<'_>) -> Result<(), String> {
    let Some(repository) = &input.repository else {
        return Ok(());
    };
    let mounted = Mounted::new(subject)?;
    let clone = mounted.point().join("clone");
    let (from, to) = (repository.to_str().unwrap(), clone.to_str().unwrap());
    // Files of its own, not links to those of the repository.
    let args = ["clone", "--quiet", "--no-hardlinks", from, to];
    let took = seconds(|| run("git", &args).map(drop))?;
    report("git clone", Unit::Seconds, took);
    for when in ["first", "warm", "cold"] {
        if when == "cold" {
            forget("3")?;
        }
        let mut said = String::new();
        let took = seconds(|| {
            said = run("git", &["-C", to, "status", "--porcelain"])?;
            Ok(())
        })?;
        if !said.is_empty() {
            return Err(format!("changed since it was cloned: {said}"));
        }
        report(&format!("git status, {when}"), Unit::Seconds, took);
    }
    ended(mounted, report).map(drop)
}

/// A C program of 200 files, compiled by two processes at once, and linked.
pub fn compile(subject: Subject, _: &Asked, _: &Input, report: Report<'_>) -> Result<(), String> {
    let mounted = Mounted::new(subject)?;
    let at = mounted.point();
    write_program(&at).map_err(|error| error.to_string())?;
    let place = at.to_str().unwrap();
    let took = seconds(|| run("make", &["--silent", "-j2", "-C", place]).map(drop))?;
    report("200 files compiled", Unit::Seconds, took);
    run(at.join("program").to_str().unwrap(), &[])?;
    ended(mounted, report).map(drop)
}

fn write_program(at: &Path) -> std::io::Result<()> {
    let mut main = String::new();
    for number in 0..SOURCES {
        let mut source = "#include <stdio.h>\n#include \"common.h\"\n".to_owned();
        for function in 0..FUNCTIONS {
            _ = writeln!(
                source,
                "static int f{function}(int x) {{ return x * {function} + {number}; }}"
            );
        }
        _ = writeln!(source, "int part{number}(int x) {{\n    int sum = x;");
        for function in 0..FUNCTIONS {
            _ = writeln!(source, "    sum += f{function}(sum & COMMON);");
        }
        source.push_str("    return sum;\n}\n");
        fs::write(at.join(format!("part{number}.c")), source)?;
        _ = writeln!(main, "int part{number}(int);");
    }
    main.push_str("int main(void) {\n    int x = 1;\n");
    for number in 0..SOURCES {
        _ = writeln!(main, "    x = part{number}(x) & 1023;");
    }
    main.push_str("    return x < 0;\n}\n");
    fs::write(at.join("main.c"), main)?;
    fs::write(at.join("common.h"), "#define COMMON 255\n")?;
    const MAKEFILE: &str = "objects := $(patsubst %.c,%.o,$(wildcard *.c))\n\
        program: $(objects)\n\t$(CC) -o $@ $^\n\
        $(objects): common.h\n";
    fs::write(at.join("Makefile"), MAKEFILE)
}
