//! Output of `perf script`: a header line for each sample, with the address on
//! the same line, or followed by the call chain, innermost first, and an empty
//! line.
//!
//! Which fields a header has depends on how perf was asked (`-F`). Everything
//! but the command and a thread number is optional here.

use std::sync::LazyLock;

use regex::Regex;

use super::{Reader, Refused};
use crate::Profile;

const HEADER: Refused = "the header of a sample of perf script: command, thread, time, event";
const FRAME: Refused = "a frame of a call chain: address, symbol, (module)";

const ONE_EVENT: Refused = "a sample of the event that the first is of: ticks of different events \
    cannot be added; record one (perf record -e), or keep the samples of one";

/// Command, thread, CPU, trace flags, time, period, event, and the rest.
static SAMPLE: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"(?x)
        ^\s* (?P<command>\S.*?) \s+ -?\d+ (?:/-?\d+)?
        (?: \s+ \[\d+\] )?
        (?: \s+ [\w.]{4,6} )?
        (?: \s+ (?P<time>\d+\.\d+): )?
        (?: (?: \s+ (?P<period>\d+) )? \s+ (?P<event> [^\s:] \S* ) : (?: \s+ (?P<rest>\S.*) )? )?
        \s* $";
    Regex::new(pattern).expect("a constant pattern")
});

/// Address, symbol, offset in it, and module.
static PLACE: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"(?x)
        ^\s* [0-9a-fA-F]+ (?: \s+ (?P<symbol>\S.*?) )?? (?: \+0x[0-9a-fA-F]+ )?
        (?: \s+ \( (?P<module> [^()]* (?: \([^()]*\) )? [^()]* ) \) )? \s* $";
    Regex::new(pattern).expect("a constant pattern")
});

pub struct Perf {
    periods: bool,
    /// What the samples are of, if they say it.
    event: Option<String>,
    /// The sample whose chain is being read.
    sample: Option<Sample>,
}

struct Sample {
    command: String,
    ticks: u64,
    /// The address is in the header: no chain follows.
    complete: bool,
    /// Innermost first.
    frames: Vec<String>,
}

impl Perf {
    pub fn new(periods: bool) -> Self {
        Self {
            periods,
            event: None,
            sample: None,
        }
    }

    fn header(&mut self, line: &str) -> Result<Sample, Refused> {
        let found = SAMPLE.captures(line).ok_or(HEADER)?;
        let event = found.name("event").map(|event| event_name(event.as_str()));
        match (&self.event, event) {
            (Some(first), Some(event)) if first != event => return Err(ONE_EVENT),
            (None, Some(event)) => self.event = Some(event.to_owned()),
            _ => {}
        }
        let period = found.name("period").map(|period| period.as_str().parse());
        let ticks = match (self.periods, period) {
            (true, Some(period)) => period.map_err(|_| HEADER)?,
            _ => 1,
        };
        // What follows a tracepoint's name are its fields, not an address.
        let place = found.name("rest").and_then(|rest| frame(rest.as_str()));
        Ok(Sample {
            command: found["command"].to_owned(),
            ticks,
            complete: place.is_some(),
            frames: place.into_iter().collect(),
        })
    }

    fn finish(&mut self, profile: &mut Profile) {
        let Some(sample) = self.sample.take() else {
            return;
        };
        let mut stack = vec![sample.command.into()];
        match sample.frames.is_empty() {
            // The sample hit what perf was not asked to look into.
            true => stack.push("[unknown]".into()),
            false => stack.extend(sample.frames.into_iter().rev().map(Into::into)),
        }
        profile.add(stack, sample.ticks);
    }
}

impl Reader for Perf {
    fn line(&mut self, line: &str, profile: &mut Profile) -> Result<(), Refused> {
        if line.starts_with('#') || line.contains(" PERF_RECORD_") {
            return Ok(());
        }
        if line.trim().is_empty() {
            self.finish(profile);
            return Ok(());
        }
        // A chain's lines are indented. So is a header padded for alignment, but
        // it follows a sample that is complete.
        match &mut self.sample {
            Some(sample) if !sample.complete && line.starts_with([' ', '\t']) => {
                sample.frames.push(frame(line).ok_or(FRAME)?);
            }
            _ => {
                self.finish(profile);
                self.sample = Some(self.header(line)?);
            }
        }
        Ok(())
    }

    fn end(&mut self, profile: &mut Profile) -> Result<(), Refused> {
        self.finish(profile);
        Ok(())
    }
}

/// An event without its modifiers (`cycles:u`). Of a processor with two kinds of cores
/// each kind has the event (`cpu_core/cycles/`), and together they are one profile.
fn event_name(event: &str) -> &str {
    let of_cores = ["cpu_core/", "cpu_atom/"];
    let name = of_cores.iter().find_map(|cores| event.strip_prefix(cores));
    let name = name.and_then(|name| name.split('/').next());
    let name = name.unwrap_or(event);
    match name.rsplit_once(':') {
        Some((name, modifiers)) if !modifiers.is_empty() && modifiers.len() <= 5 => {
            let is_modifier = |letter: char| "ukhHGpPSDIWeb".contains(letter);
            match modifiers.chars().all(is_modifier) {
                true => name,
                false => event,
            }
        }
        _ => name,
    }
}

/// The function of a frame; the module in brackets where no symbol is known.
fn frame(line: &str) -> Option<String> {
    let found = PLACE.captures(line)?;
    let symbol = found.name("symbol").map(|symbol| symbol.as_str());
    match symbol {
        Some(symbol) if symbol != "[unknown]" => Some(symbol.to_owned()),
        _ => {
            let module = found.name("module").map_or("unknown", |m| m.as_str());
            let module = module.trim_matches(['[', ']']);
            let file = module.rsplit('/').next().unwrap_or(module);
            Some(format!("[{file}]"))
        }
    }
}

pub fn begins_with(line: &str) -> bool {
    let found = SAMPLE.captures(line);
    found.is_some_and(|found| found.name("time").is_some() || found.name("event").is_some())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{Options, tests::read, text};
    use crate::Profile;

    /// As perf 6.1 printed it, with call chains.
    const CHAINS: &str = "\
sh 24565  1701.744405:     250000 cpu-clock: 
\t           153e0 update_active.constprop.0+0x270 (/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2)

sh 24565  1701.744667:     250000 cpu-clock: 
\tffffffff821f2fa7 exc_page_fault+0xd7 ([kernel.kallsyms])
\tffffffff81000c82 asm_exc_page_fault+0x22 ([kernel.kallsyms])
\t           1cbd1 dl_main+0xc11 (/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2)

sh 24565  1701.745398:     250000 cpu-clock: 
\t            af23 [unknown] (/usr/bin/dash)
\t    557369dcb530 [unknown] ([unknown])

sh 24565  1701.745652:     250000 cpu-clock: 

";

    #[test]
    fn call_chains_are_turned_outermost_first_below_their_command() {
        let profile = read(CHAINS).unwrap();
        let folded = "\
sh;[unknown] 1
sh;[unknown];[dash] 1
sh;dl_main;asm_exc_page_fault;exc_page_fault 1
sh;update_active.constprop.0 1
";
        assert_eq!(profile.folded(), folded);
    }

    #[test]
    fn periods_weigh_samples_if_asked_to() {
        let options = Options {
            format: None,
            periods: true,
        };
        let profile = text(CHAINS.as_bytes(), Path::new("p"), options).unwrap();
        assert_eq!(profile.total(), 4 * 250_000);
    }

    #[test]
    fn samples_without_chains_are_read_padded_or_not() {
        let text = "\
              sh 24565  1701.744405:     250000 cpu-clock:      7f0a7a6593e0 f+0x270 (/lib/ld.so.2)
              dd 24566 [001]  1701.744667:     250000 cpu-clock:  ffffffff821f2fa7 exc_page_fault+0xd7 ([kernel.kallsyms])
          ab 1/2 24567 [000]  1701.7:   1 cpu-clock:u:  557369db6f23 [unknown] (/usr/bin/dash (deleted))
swapper     0/0 [003] d..2. 17.5: 1 cpu-clock:P:  ffffffff8 native_safe_halt+0xe ([kernel.kallsyms])
";
        let profile = read(text).unwrap();
        let folded = "\
ab 1/2;[dash (deleted)] 1
dd;exc_page_fault 1
sh;f 1
swapper;native_safe_halt 1
";
        assert_eq!(profile.folded(), folded);
    }

    #[test]
    fn inlined_frames_and_names_with_blanks_are_read() {
        let text = "\
web server 7 17.5: 1 cycles:P: 
\t  5573 std::vector<int, std::allocator<int> >::push_back(int&&) (inlined)
\t  5573 operator new (unsigned long)+0x4 (/usr/lib/libstdc++.so.6)
\t  5570 main+0x1f (/opt/a b/web server)
";
        let profile = read(text).unwrap();
        let flat = profile.flat();
        let name = "std::vector<int, std::allocator<int> >::push_back(int&&)";
        assert_eq!(flat.keys().copied().collect::<Vec<_>>(), [name]);
        let stack: Vec<String> = profile
            .stacks()
            .next()
            .unwrap()
            .0
            .iter()
            .map(|n| n.to_string())
            .collect();
        assert_eq!(stack[..2], ["web server", "main"]);
    }

    #[test]
    fn tracepoints_with_fields_keep_their_chain() {
        let text = "\
kswapd0 38 [001]  1701.7: kmem:mm_page_free: page=0x1 pfn=0x1 order=0
\tffffffff8 free_unref_page+0x1 ([kernel.kallsyms])
\tffffffff9 shrink_folio_list+0x1 ([kernel.kallsyms])

";
        assert_eq!(
            read(text).unwrap().folded(),
            "kswapd0;shrink_folio_list;free_unref_page 1\n"
        );
    }

    #[test]
    fn fields_may_be_missing() {
        let text = "sh 24565 \n\t 153e0 update_active\n\t 1a34f _dl_sysdep_start\n\n";
        let options = Options {
            format: Some(super::super::Format::Perf),
            periods: false,
        };
        let profile: Profile =
            super::super::text(text.as_bytes(), Path::new("p"), options).unwrap();
        assert_eq!(profile.folded(), "sh;_dl_sysdep_start;update_active 1\n");
    }

    #[test]
    fn damaged_lines_are_refused() {
        for (text, place) in [
            (
                "sh 1 17.5: 1 cycles: \n\tno address (/lib/x)\n",
                "in.txt:2: expected a frame",
            ),
            (
                "sh 1 17.5: 1 cycles: \n\t ab f\n\nsh one 17.5\n",
                "in.txt:4: expected the header",
            ),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.starts_with(place), "{error}");
        }
    }

    #[test]
    fn samples_of_two_events_are_not_added() {
        let of = |event: &str| {
            format!("make 100 [000] 1.0:    100 {event}: \n\t401000 main+0x0 (/bin/make)\n\n")
        };
        for (one, other, is_one) in [
            ("cpu-clock", "page-faults", false),
            ("sched:sched_switch", "sched:sched_wakeup", false),
            ("cycles:u", "cycles:k", true),
            ("cpu_core/cycles/", "cpu_atom/cycles/", true),
            ("cpu_core/cycles/", "cpu_atom/instructions/", false),
        ] {
            let text = of(one) + &of(one) + &of(other);
            match read(&text) {
                Ok(profile) => assert!(is_one && profile.total() == 3, "{one} {other}"),
                Err(error) => {
                    let error = error.to_string();
                    assert!(!is_one && error.contains(other), "{error}");
                    assert!(error.contains("cannot be added"), "{error}");
                }
            }
        }
    }
}
