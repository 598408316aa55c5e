//! The scripts: what each consists of, and in which order.
//!
//! SDET's description lists the commands that its scripts execute; the scripts
//! themselves are not public. These are our own: every command of that list, in
//! small steps such as a programmer at a terminal would take, 24 kinds of step,
//! some of them several times. A step needs nothing but what [`super::home`]
//! puts into the directory, and leaves nothing behind that another step reads,
//! so that any order of steps works.

use std::fmt::Write;

use crate::host::tools::Tool;
use crate::stats::Random;

/// Every program that steps run and the shell does not bring along.
pub const TOOLS: &[Tool] = &[
    tool("cat", "coreutils"),
    tool("cc", "gcc"),
    tool("col", "bsdextrautils"),
    tool("cp", "coreutils"),
    tool("cpio", "cpio"),
    tool("date", "coreutils"),
    tool("diff", "diffutils"),
    tool("ed", "ed"),
    tool("expr", "coreutils"),
    tool("find", "findutils"),
    tool("grep", "grep"),
    tool("ls", "coreutils"),
    tool("make", "make"),
    tool("mkdir", "coreutils"),
    tool("mv", "coreutils"),
    tool("nroff", "groff-base"),
    tool("pr", "coreutils"),
    tool("ps", "procps"),
    tool("rm", "coreutils"),
    tool("rmdir", "coreutils"),
    tool("sh", "dash"),
    tool("spell", "spell"),
    tool("time", "time"),
    tool("touch", "coreutils"),
    tool("wc", "coreutils"),
    tool("who", "coreutils"),
];

const fn tool(program: &'static str, package: &'static str) -> Tool {
    Tool { program, package }
}

/// One kind of step: a piece of shell, in which `@` stands for a name that no
/// other step of the script uses.
struct Step {
    /// How often a script takes it.
    times: usize,
    shell: &'static str,
}

const fn step(times: usize, shell: &'static str) -> Step {
    Step { times, shell }
}

const STEPS: &[Step] = &[
    // Editing.
    step(
        4,
        "cp text/chapter1 tmp/@\n\
         ed -s tmp/@ <<'END'\n1,$s/river/stream/g\n/mountain/d\nw\nq\nEND\n\
         diff text/chapter1 tmp/@ > tmp/@.diff || test $? -eq 1\n\
         rm tmp/@ tmp/@.diff",
    ),
    step(
        3,
        "ed -s text/table <<'END' > tmp/@\n,p\n/7/p\n$=\nQ\nEND\nwc tmp/@\nrm tmp/@",
    ),
    // Programming.
    step(3, "cd src\ncc -c -o ../tmp/@.o queue.c\ncd ..\nrm tmp/@.o"),
    step(
        2,
        "mkdir tmp/@\ncp src/* tmp/@\ncd tmp/@\nmake -s\n./count < ../../text/chapter2 > out\n\
         make -s clean\ncd ../..\nrm -r tmp/@",
    ),
    step(2, "cd src\nmake -n > ../tmp/@\ncd ..\nrm tmp/@"),
    step(
        4,
        "grep -n queue_ src/*.c src/*.h > tmp/@\nwc -l tmp/@\nrm tmp/@",
    ),
    // Writing.
    step(
        3,
        "nroff -man doc/queue.3 | col -b > tmp/@\nwc tmp/@\nrm tmp/@",
    ),
    step(3, "spell text/chapter3 > tmp/@\nwc -l tmp/@\nrm tmp/@"),
    step(4, "pr -2 -l 60 text/chapter4 > tmp/@\nrm tmp/@"),
    step(5, "grep -i stone text/chapter* > tmp/@\nrm tmp/@"),
    step(4, "cat text/chapter* > tmp/@\nwc tmp/@\nrm tmp/@"),
    step(
        3,
        "diff text/chapter1 text/chapter2 > tmp/@ || test $? -eq 1\nrm tmp/@",
    ),
    // Keeping files in order.
    step(5, "ls -lR . > tmp/@\nrm tmp/@"),
    step(6, "ls text src doc > /dev/null"),
    step(3, "find . -type f -print > tmp/@\nwc -l tmp/@\nrm tmp/@"),
    step(
        2,
        "mkdir tmp/@\nfind notes -depth -print | cpio -pdm --quiet tmp/@\nrm -r tmp/@",
    ),
    step(
        2,
        "find notes -type f -print | cpio -o --quiet > tmp/@\ncpio -it --quiet < tmp/@ > tmp/@.list\n\
         rm tmp/@ tmp/@.list",
    ),
    step(3, "cp -r notes tmp/@\nrm -r tmp/@"),
    step(4, "mkdir tmp/@\nrmdir tmp/@"),
    step(5, "touch tmp/@\nmv tmp/@ tmp/@.moved\nrm tmp/@.moved"),
    // Looking around.
    step(3, "ps > tmp/@\nrm tmp/@"),
    step(
        3,
        "date > tmp/@\nwho >> tmp/@\necho done >> tmp/@\ncat tmp/@\nrm tmp/@",
    ),
    step(
        3,
        "n=0\nwhile test $n -lt 8\ndo n=`expr $n + 1`\ndone\necho $n",
    ),
    step(
        3,
        "time -p sh -c 'cd text; cat * | wc' > tmp/@ 2>&1\ncat tmp/@\nrm tmp/@",
    ),
];

/// The text of script `number` (from 0): the same steps as every other script,
/// in an order that follows from `seed` and `number`.
pub fn script(seed: u64, number: usize) -> String {
    let all = STEPS
        .iter()
        .flat_map(|step| std::iter::repeat_n(step, step.times));
    let mut steps: Vec<(usize, &Step)> = all.enumerate().collect();
    // Each script has a sequence of its own.
    let own = seed
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(number as u64);
    Random::seeded(own).shuffle(&mut steps);
    let mut text = String::new();
    for (name, step) in steps {
        let _ = writeln!(text, "{}", step.shell.replace('@', &format!("t{name}")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The commands of the measured window, as the description of SDET lists
    /// them.
    const COMMANDS: &str = "cat cc cd col cp cpio date diff echo ed expr find grep ls make mkdir mv \
                            nroff pr ps rm rmdir sh spell test time touch wc who";

    fn words(text: &str) -> Vec<&str> {
        text.split(|c: char| !c.is_ascii_alphanumeric()).collect()
    }

    #[test]
    fn every_listed_command_occurs_and_is_checked_for() {
        let script = script(1, 0);
        let words = words(&script);
        for command in COMMANDS.split_whitespace() {
            assert!(words.contains(&command), "{command}");
            let builtin = ["cd", "echo", "test"].contains(&command);
            let checked = TOOLS.iter().any(|tool| tool.program == command);
            assert!(builtin || checked, "{command}");
        }
    }

    #[test]
    fn scripts_are_the_same_multiset_in_different_orders() {
        let sorted = |number| {
            let text = script(1, number);
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(0), sorted(1));
        assert_ne!(script(1, 0), script(1, 1));
        assert_ne!(script(1, 0), script(2, 0));
        assert_eq!(script(7, 3), script(7, 3));
    }

    #[test]
    fn no_two_steps_use_the_same_name() {
        let script = script(1, 0);
        let mut made: Vec<&str> = script
            .lines()
            .filter_map(|line| line.strip_prefix("mkdir "))
            .collect();
        let all = made.len();
        made.sort_unstable();
        made.dedup();
        assert_eq!(made.len(), all);
    }
}
