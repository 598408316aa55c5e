//! Nobody sleeps while pinned: what the types leave open.
//!
//! What may sleep takes an [`Unpinned`](crate::sync::Unpinned), and whoever has one and pins by it
//! cannot hand it on before the pin ends. That is worth what those are who make one, and what
//! those do who have one: here is who may, and that they pin in no other way.

use std::fs;
use std::path::{Path, PathBuf};
use std::string::String;
use std::vec::Vec;

/// A function: the file that it is in, below `src/`, its name, and its text without comments.
struct Function {
    file: String,
    name: String,
    text: String,
}

impl Function {
    /// What it takes and returns.
    fn head(&self) -> &str {
        let end = self.text.find("{\n").unwrap_or(self.text.len());
        &self.text[..end]
    }

    /// Whether it may sleep.
    fn has_proof(&self) -> bool {
        let proofs = ["Unpinned<", "MaybePinned<", "at_door()", "unless_pinned()"];
        proofs.iter().any(|proof| self.text.contains(proof))
    }
}

fn files_below(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => files_below(&path, files),
            false => files.push(path),
        }
    }
}

/// All functions of the core, without those of tests, of what the pins themselves are, and of what
/// an embedder implements.
fn functions() -> Vec<Function> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    files_below(&src, &mut files);
    let mut functions = Vec::new();
    for path in files {
        let file = path.strip_prefix(&src).expect("below it").to_string_lossy();
        if file.contains("test") || file.starts_with("platform") || file == "sync/unpinned.rs" {
            continue;
        }
        let text = fs::read_to_string(&path).expect("text");
        let mut inside: Option<(String, Function)> = None;
        for line in text.lines() {
            let code = line.trim_start();
            if code.starts_with("//") {
                continue;
            }
            let indent = &line[..line.len() - code.len()];
            if inside.is_none()
                && let Some((before, rest)) = code.split_once("fn ")
                && before
                    .chars()
                    .all(|c| !"(=|<".contains(c) || before.starts_with("pub("))
            {
                let end = rest.find(|c: char| c != '_' && !c.is_alphanumeric());
                let function = Function {
                    file: file.clone().into_owned(),
                    name: rest[..end.unwrap_or(rest.len())].into(),
                    text: String::new(),
                };
                inside = Some((std::format!("{indent}}}"), function));
            }
            if let Some((end, function)) = &mut inside {
                function.text.push_str(line);
                function.text.push('\n');
                let is_short = code.ends_with(';') && !function.text.contains("{\n");
                if line == end
                    || is_short
                    || code.ends_with('}') && function.text.lines().count() == 1
                {
                    functions.extend(inside.take().map(|(_, function)| function));
                }
            }
        }
    }
    functions
}

fn named(functions: &[Function], is_meant: impl Fn(&Function) -> bool) -> Vec<String> {
    let meant = functions.iter().filter(|function| is_meant(function));
    let mut names: Vec<String> = meant
        .map(|function| std::format!("{} {}", function.file, function.name))
        .collect();
    names.sort_unstable();
    names
}

/// Each call of an embedder's begins with a proof. What the core calls itself is handed one.
#[test]
fn proofs_are_made_at_the_doors_and_nobody_inside_calls_a_door() {
    let functions = functions();
    let makes = |function: &Function| {
        ["at_door", "unless_pinned()"]
            .iter()
            .any(|maker| function.text.contains(maker))
    };
    let elsewhere = named(&functions, |function| {
        makes(function) && !function.file.starts_with("space/")
    });
    assert_eq!(elsewhere, ["frame/memory.rs unless_pinned"]);
    let doors: Vec<&Function> = (functions.iter())
        .filter(|function| makes(function) && function.file.starts_with("space/"))
        .collect();
    assert!(doors.len() > 40, "{} doors", doors.len());
    // Calls may be spread over lines.
    let texts: Vec<(&Function, String)> = (functions.iter())
        .filter(|function| function.file.starts_with("space/"))
        .map(|function| (function, function.text.split_whitespace().collect()))
        .collect();
    for door in doors {
        let is_public = door.text.trim_start().starts_with("pub fn ");
        let call = |on: &str| std::format!("{on}.{}(", door.name);
        let calls = |text: &str| {
            ["vm", "vm)", "self", "page_cache()"]
                .iter()
                .any(|on| text.contains(&call(on)))
        };
        let is_handle = |function: &Function| function.file.starts_with("space/handle/");
        let by_handles = texts
            .iter()
            .any(|(function, text)| is_handle(function) && calls(text));
        assert!(
            is_public || by_handles,
            "no call of an embedder's: {}",
            door.name
        );
        let callers = texts
            .iter()
            .filter(|(function, text)| !is_handle(function) && calls(text));
        let callers: Vec<&str> = callers
            .map(|(function, _)| function.name.as_str())
            .collect();
        assert!(callers.is_empty(), "{} is called by {callers:?}", door.name);
    }
}

#[test]
fn whoever_may_sleep_pins_only_by_the_proof() {
    let functions = functions();
    let pins = [".pin()", ".pin_and_try(", ".pin_with(", ".enter(self,"];
    let others = named(&functions, |function| {
        // The pin is kept together with the proof.
        let text = (function.text).replace("pinned_with(self.memory.pin_and_try(", "");
        function.has_proof() && pins.iter().any(|pin| text.contains(pin))
    });
    // What a pin by the proof is, and what asks whether the embedder has one.
    let makers = [
        "frame/memory.rs pin_by",
        "frame/memory.rs pin_by_and_try",
        "frame/memory.rs unless_pinned",
        "space/locks/lookup.rs pin_for_fault",
    ];
    assert_eq!(others, makers);
    // What they were given to call could sleep.
    let unproved = named(&functions, |function| {
        let calls = ["impl Fn", "dyn Fn"];
        let is_given = calls.iter().any(|call| function.head().contains(call));
        is_given && !function.has_proof() && pins.iter().any(|pin| function.text.contains(pin))
    });
    assert_eq!(unproved, ["frame/memory.rs pin_with"]);
    let both = named(&functions, |function| {
        function.head().contains("pin: &Pin<") && function.head().contains("unpinned: Unpinned<")
    });
    assert!(both.is_empty(), "{both:?}");
    let sleepers = functions.iter().filter(|function| function.has_proof());
    assert!(sleepers.count() > 150);
}

/// A pin that outlives the function that has taken it is bound to the proof as well.
#[test]
fn pins_are_handed_out_by_the_proof() {
    let functions = functions();
    let unbound = named(&functions, |function| {
        let returned = function.head().rsplit_once(") -> ");
        let returned = returned.map_or("", |(_, returned)| returned);
        // Not what a function returns that it takes.
        let is_own = returned.matches('(').count() == returned.matches(')').count();
        let is_pin = is_own && returned.contains("Pin<") && !returned.contains("&'a Pin<");
        is_pin && !function.head().contains("Unpinned<") && function.file != "sync/epoch.rs"
    });
    let known = [
        "frame/memory.rs pin",
        "frame/memory.rs pin",
        "frame/memory.rs pin_and_try",
        "frame/memory.rs pin_with",
        "space/state/common.rs pin",
        "space/state/manager.rs pin",
    ];
    assert_eq!(unbound, known);
}

/// What the platform does may take as long as a device does.
#[test]
fn the_platform_is_asked_for_what_may_sleep_with_the_proof() {
    let functions = functions();
    let calls = [
        ".park(",
        ".read_page(",
        ".read_pages(",
        ".write_page(",
        ".write_pages(",
        ".write_slot(",
        ".find_page(",
        ".discard_pages(",
        ".flush_store(",
        ".out_of_memory(",
        ".group_out_of_memory(",
        "swap.write(",
    ];
    let asks = |function: &Function| {
        let is_inside = !function.file.starts_with("space/handle/");
        is_inside && calls.iter().any(|call| function.text.contains(call))
    };
    let asking = named(&functions, asks);
    assert!(asking.len() > 8, "{asking:?}");
    let others = named(&functions, |function| {
        asks(function) && !function.text.contains("unpinned_platform(")
    });
    // Whoever writes to swap has the platform by the proof, and the last two take it.
    let with_platform = [
        "swap/mod.rs write",
        "sync/queue.rs sleep_until_first",
        "sync/wait.rs sleep_if",
    ];
    assert_eq!(others, with_platform);
}
