//! The documentation site: the documents of the repository as HTML beside the API
//! documentation, with every link between them checked.
//!
//! Files of the source that documents link to are part of the site, as text. So it can be
//! read without the repository, from any directory and without a server. Links to other
//! sites are not followed.
//!
//! Why not mdBook: it takes pages below one folder that a table of contents lists, and most links
//! here lead elsewhere, to source files, the API documentation, and from that to pages. Checking
//! links is an add-on of it, and both would be compiled wherever the checks run.

mod links;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};

use crate::command::{cargo, succeed, target};
pub use links::Slugs;
use links::{Target, joined, relative};

const STYLE: &str = include_str!("site/style.css");

/// What marks a directory as a site that may be replaced.
const MARKER: &str = ".vellum-site";

/// Documents outside of `docs/`.
const OTHERS: [&str; 5] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "traces/README.md",
];

/// Where the site goes.
#[derive(clap::Args)]
pub struct Args {
    /// Directory for the site
    #[arg(short, long, value_name = "DIRECTORY", default_value = "target/site")]
    output: PathBuf,
    /// Leave out the API documentation, which takes longest
    #[arg(long)]
    no_api: bool,
}

/// A document.
struct Document {
    /// Its path in the repository.
    path: String,
    text: String,
    title: String,
    /// The names of its headings.
    anchors: BTreeSet<String>,
}

/// Builds the site.
pub fn run(args: &Args) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let documents = documents(&root)?;
    let mut site = Site {
        root: &root,
        documents: &documents,
        has_api: !args.no_api,
        sources: BTreeSet::new(),
        broken: Vec::new(),
    };
    let pages: Vec<(String, String)> = documents
        .values()
        .map(|document| (page_of(&document.path), site.page(document)))
        .collect();
    if !site.broken.is_empty() {
        return Err(format!(
            "{} broken links:\n{}",
            site.broken.len(),
            site.broken.join("\n")
        ));
    }
    make_room(&args.output)?;
    for (path, page) in &pages {
        write(&args.output.join(path), page)?;
    }
    for source in &site.sources {
        let to = args.output.join(source_page(source));
        let bytes = fs::read(root.join(source)).map_err(|error| format!("{source}: {error}"))?;
        write(&to, bytes)?;
    }
    if site.has_api {
        api(&root, &args.output)?;
    }
    println!("{}", args.output.join("index.html").display());
    Ok(())
}

fn documents(root: &Path) -> Result<BTreeMap<String, Document>, String> {
    let failed = |error: std::io::Error| format!("docs: {error}");
    let mut paths: Vec<String> = OTHERS.map(str::to_owned).to_vec();
    for folder in ["docs", "docs/results"] {
        for entry in fs::read_dir(root.join(folder)).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let name = name.to_string_lossy();
            if name.ends_with(".md") {
                paths.push(format!("{folder}/{name}"));
            }
        }
    }
    let mut documents = BTreeMap::new();
    for path in paths {
        let text = fs::read_to_string(root.join(&path)).map_err(|e| format!("{path}: {e}"))?;
        documents.insert(path.clone(), Document::new(path, text));
    }
    Ok(documents)
}

fn parse(text: &str) -> Parser<'_> {
    Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH)
}

impl Document {
    fn new(path: String, text: String) -> Document {
        let mut slugs = Slugs::default();
        let (mut anchors, mut title) = (BTreeSet::new(), None);
        for heading in headings(&text) {
            anchors.insert(slugs.next(&heading));
            title.get_or_insert(heading);
        }
        Document {
            title: title.unwrap_or_else(|| path.clone()),
            path,
            text,
            anchors,
        }
    }
}

/// The texts of all headings.
fn headings(text: &str) -> Vec<String> {
    let mut headings = Vec::new();
    let mut heading: Option<String> = None;
    for event in parse(text) {
        match (event, &mut heading) {
            (Event::Start(Tag::Heading { .. }), _) => heading = Some(String::new()),
            (Event::Text(part) | Event::Code(part), Some(heading)) => heading.push_str(&part),
            (Event::End(TagEnd::Heading(_)), _) => headings.extend(heading.take()),
            _ => {}
        }
    }
    headings
}

/// Where a document is in the site.
fn page_of(path: &str) -> String {
    match path {
        "README.md" => "index.html".to_owned(),
        _ => path.trim_end_matches("md").to_owned() + "html",
    }
}

/// Where a file of the source is in the site.
fn source_page(path: &str) -> String {
    match path.rsplit_once('.') {
        Some((_, "svg" | "png" | "html")) => format!("source/{path}"),
        _ => format!("source/{path}.txt"),
    }
}

struct Site<'s> {
    root: &'s Path,
    documents: &'s BTreeMap<String, Document>,
    has_api: bool,
    /// Files of the source that are linked to.
    sources: BTreeSet<String>,
    broken: Vec<String>,
}

impl Site<'_> {
    /// A document as a page.
    fn page(&mut self, document: &Document) -> String {
        let mut anchors = Vec::new();
        let mut slugs = Slugs::default();
        for heading in headings(&document.text) {
            anchors.push(slugs.next(&heading));
        }
        let mut anchors = anchors.into_iter();
        let here = page_of(&document.path);
        let events = parse(&document.text)
            .into_offset_iter()
            .map(|(event, range)| match event {
                Event::Start(Tag::Heading {
                    level,
                    classes,
                    attrs,
                    ..
                }) => Event::Start(Tag::Heading {
                    level,
                    id: anchors.next().map(CowStr::from),
                    classes,
                    attrs,
                }),
                Event::Start(Tag::Link {
                    link_type,
                    dest_url,
                    title,
                    id,
                }) => Event::Start(Tag::Link {
                    link_type,
                    dest_url: self.link(document, &dest_url, range.start).into(),
                    title,
                    id,
                }),
                Event::Start(Tag::Image {
                    link_type,
                    dest_url,
                    title,
                    id,
                }) => Event::Start(Tag::Image {
                    link_type,
                    dest_url: self.link(document, &dest_url, range.start).into(),
                    title,
                    id,
                }),
                event => event,
            });
        let mut body = String::new();
        html::push_html(&mut body, events);
        let style = relative(&here, "style.css");
        let title = escaped(&document.title);
        let navigation = self.navigation(&here);
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <meta name=\"color-scheme\" content=\"light dark\"><title>{title} - Vellum</title>\
             <link rel=\"stylesheet\" href=\"{style}\"></head>\n<body>\n{navigation}<main>\n\
             {body}</main>\n</body></html>\n"
        )
    }

    fn navigation(&self, here: &str) -> String {
        let item = |page: &str, title: &str| {
            let current = if page == here {
                " aria-current=\"page\""
            } else {
                ""
            };
            let (link, title) = (relative(here, page), escaped(title));
            format!("<li><a href=\"{link}\"{current}>{title}</a></li>\n")
        };
        let mut text = String::from("<nav aria-label=\"documents\"><ul>\n");
        text += &item("index.html", "Vellum");
        let tutorial = "docs/tutorial.md";
        let order = |path: &&String| (*path != tutorial, !path.starts_with("docs/"));
        let mut paths: Vec<&String> = self
            .documents
            .keys()
            .filter(|p| *p != "README.md")
            .collect();
        paths.sort_by_key(order);
        for path in paths {
            text += &item(&page_of(path), &self.documents[path].title);
        }
        if self.has_api {
            text += &item("api/vellum/index.html", "API: the memory manager");
            text += &item("api/vellum_trace/index.html", "API: traces");
        }
        text + "</ul></nav>\n"
    }

    /// Where a link of a document leads in the site.
    fn link(&mut self, document: &Document, to: &str, place: usize) -> String {
        let line = document.text[..place].matches('\n').count() + 1;
        let mut broken = |why: &str| {
            self.broken
                .push(format!("{}:{line}: {to}: {why}", document.path));
            String::new()
        };
        let (path, anchor) = match Target::of(to) {
            Target::Elsewhere => return to.to_owned(),
            Target::Here { path, anchor } => (path, anchor),
        };
        let path = match path {
            "" => document.path.clone(),
            path => match joined(&document.path, path) {
                Some(path) => path,
                None => return broken("leads out of the repository"),
            },
        };
        let here = page_of(&document.path);
        if let Some(other) = self.documents.get(&path) {
            return match anchor {
                Some(anchor) if !other.anchors.contains(anchor) => broken("no such heading"),
                Some(anchor) => format!("{}#{anchor}", relative(&here, &page_of(&path))),
                None => relative(&here, &page_of(&path)),
            };
        }
        match self.root.join(&path) {
            file if file.is_file() => {
                let link = relative(&here, &source_page(&path));
                self.sources.insert(path);
                link
            }
            directory if directory.is_dir() => broken("a directory: link to a file in it"),
            _ => broken("no such file"),
        }
    }
}

/// Builds the API documentation and puts it into the site.
fn api(root: &Path, output: &Path) -> Result<(), String> {
    succeed(
        cargo()
            .current_dir(root)
            .args(["doc", "--workspace", "--no-deps", "--quiet", "--locked"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    copy(&target(root).join("doc"), &output.join("api"))?;
    for page in ["vellum/index.html", "vellum_trace/index.html"] {
        let path = output.join("api").join(page);
        if !path.is_file() {
            return Err(format!(
                "{}: the pages link to it, and it is not there",
                path.display()
            ));
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", from.display());
    fs::create_dir_all(to).map_err(failed)?;
    for entry in fs::read_dir(from).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let to = to.join(path.file_name().unwrap_or_default());
        match path.is_dir() {
            true => copy(&path, &to)?,
            false => fs::copy(&path, &to).map(drop).map_err(failed)?,
        }
    }
    Ok(())
}

/// Makes the directory, in place of an older site.
fn make_room(output: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", output.display());
    if output.exists() {
        if !output.join(MARKER).is_file() {
            return Err(format!(
                "{}: exists and is no site that this command made; name another directory",
                output.display()
            ));
        }
        fs::remove_dir_all(output).map_err(failed)?;
    }
    write(&output.join(MARKER), "")?;
    write(&output.join("style.css"), STYLE)
}

fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    fs::write(path, content).map_err(failed)
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    // Cannot fail: a string takes everything.
    let _ = pulldown_cmark_escape::escape_html(&mut escaped, text);
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_between_documents_leads_somewhere() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let documents = documents(&root).expect("read");
        let mut site = Site {
            root: &root,
            documents: &documents,
            has_api: true,
            sources: BTreeSet::new(),
            broken: Vec::new(),
        };
        for document in documents.values() {
            site.page(document);
        }
        assert!(site.broken.is_empty(), "{:#?}", site.broken);
        assert!(site.sources.len() > 3 && documents.len() > 20);
    }

    #[test]
    fn broken_links_are_named_with_their_line() {
        let text = "# One\n\n[a](two.md) [b](two.md#there)\n\n[c](two.md#nowhere)\n[d](three.md)\n\
                    [e](../../etc/passwd) [f](#one) [g](#two) [h](https://example.org/x)\n";
        let document = |path: &str, text: &str| {
            (
                path.to_owned(),
                Document::new(path.to_owned(), text.to_owned()),
            )
        };
        let documents = BTreeMap::from([
            document("docs/one.md", text),
            document("docs/two.md", "## There\n"),
        ]);
        let mut site = Site {
            root: Path::new("/nonexistent"),
            documents: &documents,
            has_api: false,
            sources: BTreeSet::new(),
            broken: Vec::new(),
        };
        let page = site.page(&documents["docs/one.md"]);
        assert!(page.contains("href=\"two.html#there\""), "{page}");
        assert!(page.contains("<h1 id=\"one\">"), "{page}");
        let broken = site.broken.join("\n");
        let wanted = "docs/one.md:5: two.md#nowhere: no such heading\n\
                      docs/one.md:6: three.md: no such file\n\
                      docs/one.md:7: ../../etc/passwd: leads out of the repository\n\
                      docs/one.md:7: #two: no such heading";
        assert_eq!(broken, wanted);
    }
}
