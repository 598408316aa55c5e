//! Where links lead, and what headings are called in them.

use std::collections::BTreeMap;

/// Where a link leads.
pub enum Target<'t> {
    /// To another site.
    Elsewhere,
    /// To a file of the repository; to the same document if the path is empty.
    Here {
        /// The file, as the link has it.
        path: &'t str,
        /// The heading, if it leads to one.
        anchor: Option<&'t str>,
    },
}

impl Target<'_> {
    /// Where `link` leads.
    pub fn of(link: &str) -> Target<'_> {
        if link.contains("://") || link.starts_with("mailto:") {
            return Target::Elsewhere;
        }
        match link.split_once('#') {
            Some((path, anchor)) => Target::Here {
                path,
                anchor: Some(anchor),
            },
            None => Target::Here {
                path: link,
                anchor: None,
            },
        }
    }
}

/// The path in the repository that `link` of the document `from` means. `None` if it leads
/// out of the repository.
pub fn joined(from: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The link from one page of a site to another.
pub fn relative(from: &str, to: &str) -> String {
    let (mut from, mut to): (Vec<&str>, Vec<&str>) =
        (from.split('/').collect(), to.split('/').collect());
    from.pop();
    while from
        .first()
        .is_some_and(|first| to.len() > 1 && to.first() == Some(first))
    {
        from.remove(0);
        to.remove(0);
    }
    "../".repeat(from.len()) + &to.join("/")
}

/// The names of a document's headings, as GitHub makes them.
#[derive(Default)]
pub struct Slugs(BTreeMap<String, usize>);

impl Slugs {
    /// The name of the next heading.
    pub fn next(&mut self, heading: &str) -> String {
        let mut slug = String::new();
        for letter in heading.to_lowercase().chars() {
            match letter {
                ' ' => slug.push('-'),
                letter if letter.is_alphanumeric() || "-_".contains(letter) => slug.push(letter),
                _ => {}
            }
        }
        let count = self.0.entry(slug.clone()).or_default();
        *count += 1;
        match *count {
            1 => slug,
            count => format!("{slug}-{}", count - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_are_called_as_on_github() {
        let mut slugs = Slugs::default();
        for (heading, wanted) in [
            ("The clock", "the-clock"),
            (
                "What `vellum` does: files, too",
                "what-vellum-does-files-too",
            ),
            ("The clock", "the-clock-1"),
        ] {
            assert_eq!(slugs.next(heading), wanted);
        }
    }

    #[test]
    fn links_between_pages_are_relative() {
        for (from, to, wanted) in [
            ("index.html", "docs/a.html", "docs/a.html"),
            ("docs/a.html", "docs/b.html", "b.html"),
            ("docs/a.html", "index.html", "../index.html"),
            (
                "docs/a.html",
                "api/vellum/index.html",
                "../api/vellum/index.html",
            ),
            ("a/b/c.html", "a/d.html", "../d.html"),
        ] {
            assert_eq!(relative(from, to), wanted, "{from} {to}");
        }
        assert_eq!(joined("docs/a.md", "../x/y.rs").as_deref(), Some("x/y.rs"));
        assert_eq!(joined("docs/a.md", "../../y.rs"), None);
    }
}
