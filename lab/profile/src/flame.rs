//! Differential flame graphs, as one SVG file that needs nothing else.
//!
//! A box is a function in its callers' context, above its caller. Its width is
//! the ticks of both profiles together, so that what only one of them has is
//! seen, too. Its colour says which of them has more: red the new one, blue the
//! old one, the fuller the greater their relative difference; grey where the
//! difference is within twice its statistical error. The idea of flame graphs and
//! of colouring them by difference is Brendan Gregg's.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::Profile;
use vellum_terminal::table::grouped;

/// Width of the drawing, in pixels.
const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 10.0;
const ROW: f64 = 17.0;
/// Room for the headings.
const TOP: f64 = 62.0;
/// Boxes that would be narrower than this, in pixels, are left out.
const NARROWEST: f64 = 0.3;
/// Width of a letter, in pixels.
const LETTER: f64 = 6.7;

/// A function in the context of its callers.
#[derive(Default)]
struct Node<'p> {
    /// Ticks of the function and what it called: old, new.
    ticks: [u64; 2],
    /// How many callers it has.
    level: usize,
    /// Numbers of nodes.
    callees: BTreeMap<&'p str, usize>,
}

impl Node<'_> {
    fn width(&self) -> u64 {
        self.ticks[0].saturating_add(self.ticks[1])
    }
}

/// The nodes by number, the root first. Stacks can be tens of thousands of frames deep, so
/// nothing here calls itself.
struct Tree<'p>(Vec<Node<'p>>);

impl<'p> Tree<'p> {
    fn of([old, new]: [&'p Profile; 2]) -> Self {
        let mut nodes = vec![Node::default()];
        for (side, profile) in [old, new].into_iter().enumerate() {
            for (stack, ticks) in profile.stacks() {
                nodes[0].ticks[side] += ticks;
                let mut at = 0;
                for (level, name) in (1..).zip(stack) {
                    let next = nodes.len();
                    at = *nodes[at].callees.entry(name).or_insert(next);
                    if at == next {
                        nodes.push(Node {
                            level,
                            ..Node::default()
                        });
                    }
                    nodes[at].ticks[side] += ticks;
                }
            }
        }
        Self(nodes)
    }

    /// The deepest level with a box that is wide enough to be drawn.
    fn drawn_depth(&self, scale: f64) -> usize {
        let drawn = self.0.iter();
        let drawn = drawn.filter(|node| is_drawn(node.width() as f64 * scale));
        drawn.map(|node| node.level).max().unwrap_or(0)
    }
}

fn is_drawn(width: f64) -> bool {
    width >= NARROWEST
}

/// The differential flame graph of two profiles.
pub fn svg(old: &Profile, new: &Profile, title: &str) -> String {
    let tree = Tree::of([old, new]);
    let root = &tree.0[0];
    let scale = (WIDTH - 2.0 * MARGIN) / root.width().max(1) as f64;
    let rows = 1 + tree.drawn_depth(scale);
    let height = TOP + rows as f64 * ROW + 2.0 * MARGIN;
    let mut drawing = Drawing {
        svg: String::new(),
        scale,
        bottom: height - MARGIN - ROW,
        totals: root.ticks,
    };
    drawing.head(height, title, [&old.name, &new.name]);
    drawing.boxes(&tree);
    drawing.svg.push_str("</svg>\n");
    drawing.svg
}

struct Drawing {
    svg: String,
    /// Pixels for a tick.
    scale: f64,
    /// Upper edge of the lowest row.
    bottom: f64,
    totals: [u64; 2],
}

impl Drawing {
    fn head(&mut self, height: f64, title: &str, [old, new]: [&str; 2]) {
        let [old_ticks, new_ticks] = self.totals;
        let (title, old, new) = (escaped(title), escaped(old), escaped(new));
        let _ = write!(
            self.svg,
            r##"<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="11">
<style>g:hover > rect {{ stroke: #000; }} text {{ pointer-events: none; }}</style>
<rect class="paper" width="100%" height="100%" fill="#ffffff"/>
<text class="heading" x="{MARGIN}" y="20" font-size="15">{title}</text>
<text class="heading" x="{MARGIN}" y="37">old: {old} ({} ticks)   new: {new} ({} ticks)   width: ticks of both together</text>
<rect x="{MARGIN}" y="44" width="11" height="11" fill="{}"/><text class="heading" x="26" y="54">more in new (worse)</text>
<rect x="176" y="44" width="11" height="11" fill="{}"/><text class="heading" x="192" y="54">more in old</text>
<rect x="286" y="44" width="11" height="11" fill="{}"/><text class="heading" x="302" y="54">no more than twice the statistical error</text>
"##,
            grouped(old_ticks),
            grouped(new_ticks),
            colour([0, 1_000_000]),
            colour([1_000_000, 0]),
            colour([1, 1]),
        );
    }

    /// Draws each box that is wide enough, callers before callees.
    fn boxes(&mut self, tree: &Tree<'_>) {
        let mut rest = vec![("all", &tree.0[0], MARGIN)];
        while let Some((name, node, x)) = rest.pop() {
            if !is_drawn(node.width() as f64 * self.scale) {
                continue;
            }
            self.node(name, node, x);
            let first = rest.len();
            let mut x = x;
            for (name, callee) in &node.callees {
                let callee = &tree.0[*callee];
                rest.push((name, callee, x));
                x += callee.width() as f64 * self.scale;
            }
            rest[first..].reverse();
        }
    }

    fn node(&mut self, name: &str, node: &Node<'_>, x: f64) {
        let width = node.width() as f64 * self.scale;
        let y = self.bottom - node.level as f64 * ROW;
        let [old, new] = node.ticks;
        let delta = i128::from(new) - i128::from(old);
        let error = (node.width() as f64).sqrt();
        let share = |side: usize| 100.0 * node.ticks[side] as f64 / self.totals[side].max(1) as f64;
        let _ = write!(
            self.svg,
            "<g><title>{}\nold {} ({:.2}%), new {} ({:.2}%), change {delta:+} \u{b1} {error:.0}</title>\
             <rect x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"{:.1}\" fill=\"{}\" rx=\"1\"/>",
            escaped(name),
            grouped(old),
            share(0),
            grouped(new),
            share(1),
            ROW - 1.0,
            colour(node.ticks),
        );
        let room = ((width - 6.0) / LETTER).max(0.0) as usize;
        if let Some(label) = label(name, room) {
            let (x, y) = (x + 3.0, y + 12.0);
            let _ = write!(
                self.svg,
                "<text x=\"{x:.2}\" y=\"{y:.1}\">{}</text>",
                escaped(&label)
            );
        }
        self.svg.push_str("</g>\n");
    }
}

/// As much of a name as `room` letters show, its end first: what tells functions
/// apart is at the end of a path.
fn label(name: &str, room: usize) -> Option<String> {
    let letters = name.chars().count();
    if letters <= room {
        return Some(name.to_owned());
    }
    let last = name.rsplit("::").next().unwrap_or(name);
    let cut = |name: &str| name.chars().take(room - 1).collect::<String>() + "\u{2026}";
    match last.chars().count() {
        _ if room < 3 => None,
        letters if letters <= room => Some(last.to_owned()),
        _ => Some(cut(last)),
    }
}

/// Red for more in the new profile, blue for more in the old one.
fn colour([old, new]: [u64; 2]) -> String {
    let (delta, sum) = (new as f64 - old as f64, new as f64 + old as f64);
    if delta.abs() <= 2.0 * sum.sqrt() {
        return "#e4e4e0".to_owned();
    }
    // From pale to full as one profile has up to three times the other.
    let strength = (2.0 * delta.abs() / sum).min(1.0);
    let pale = (215.0 - 125.0 * strength) as u8;
    match delta > 0.0 {
        true => format!("#ff{pale:02x}{pale:02x}"),
        false => format!("#{pale:02x}{:02x}ff", pale.saturating_add(20)),
    }
}

/// Text for XML, which has no room for most control characters.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => {
                escaped.push('?');
            }
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(name: &str, stacks: &[(&str, u64)]) -> Profile {
        let mut profile = Profile::new(name);
        for (stack, ticks) in stacks {
            profile.add(stack.split(';').map(Into::into).collect(), *ticks);
        }
        profile
    }

    /// The attribute `name` of the box whose title begins with `function`.
    fn attribute(svg: &str, function: &str, name: &str) -> String {
        let begin = svg
            .find(&format!("<title>{function}\n"))
            .expect("has a box");
        let of_box = &svg[begin..];
        let value = of_box
            .split_once(&format!(" {name}=\""))
            .expect("has the attribute")
            .1;
        value.split('"').next().unwrap_or_default().to_owned()
    }

    #[test]
    fn width_is_both_and_colour_is_the_difference() {
        let old = profile(
            "a",
            &[("run;gone", 1000), ("run;same", 1000), ("run;more", 1000)],
        );
        let new = profile(
            "b",
            &[("run;came", 1000), ("run;same", 1000), ("run;more", 4000)],
        );
        let svg = svg(&old, &new, "a against b");
        let number = |function, name| attribute(&svg, function, name).parse::<f64>().unwrap();
        let width = |function| number(function, "width");
        assert!((width("all") - 1180.0).abs() < 0.1);
        assert!((width("more") / width("gone") - 5.0).abs() < 0.1);
        assert_eq!(width("gone"), width("came"));
        assert!(number("run", "y") < number("all", "y"));
        let fill = |function| attribute(&svg, function, "fill");
        assert_eq!(fill("came"), fill("more"));
        assert!(fill("came").starts_with("#ff"), "{}", fill("came"));
        assert!(fill("gone").ends_with("ff"), "{}", fill("gone"));
        assert_eq!(fill("same"), colour([1, 1]));
    }

    #[test]
    fn names_are_escaped_and_tags_are_balanced() {
        let old = profile("<a> & \"b\"", &[("<T as U>::f;operator&&\u{1}", 10)]);
        let svg = svg(&old, &old, "<title>");
        assert!(svg.contains("&lt;T as U&gt;::f"), "{svg}");
        assert!(svg.contains("operator&amp;&amp;?"));
        for tag in ["g", "title", "text", "style", "svg"] {
            let opened =
                svg.matches(&format!("<{tag}>")).count() + svg.matches(&format!("<{tag} ")).count();
            let closed = svg.matches(&format!("</{tag}>")).count();
            assert_eq!(opened, closed, "{tag}");
        }
    }

    #[test]
    fn narrow_boxes_show_the_end_of_a_path_or_nothing() {
        let name = "vellum::rmap::chains::Chains::add";
        assert_eq!(label(name, 40).as_deref(), Some(name));
        assert_eq!(label(name, 10).as_deref(), Some("add"));
        assert_eq!(
            label("vellum::space::copy_pinned", 6).as_deref(),
            Some("copy_\u{2026}")
        );
        assert_eq!(label(name, 2), None);
    }

    #[test]
    fn a_stack_of_many_frames_is_drawn() {
        let names: Vec<String> = (0..100_000).map(|frame| format!("f{frame}")).collect();
        let deep = profile("deep", &[(&names.join(";"), 1)]);
        let drawn = svg(&deep, &deep, "a runaway recursion");
        assert_eq!(drawn.matches("<g>").count(), 100_001);
    }

    #[test]
    fn an_empty_comparison_is_still_a_picture() {
        let empty = Profile::new("none");
        assert!(svg(&empty, &empty, "nothing").ends_with("</svg>\n"));
    }
}
