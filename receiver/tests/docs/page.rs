//! Markdown pages of the checkout, as GitHub displays them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// The parts of a page that tests check.
#[derive(Default)]
pub struct Page {
    /// The path, relative to the checkout.
    pub path: PathBuf,
    /// The targets of links and images.
    pub links: Vec<String>,
    /// The anchors of headings.
    pub anchors: BTreeSet<String>,
    /// The fenced code blocks.
    pub blocks: Vec<Block>,
    /// Code within sentences.
    pub spans: Vec<String>,
    /// The tables. The first row of a table has the headings.
    pub tables: Vec<Vec<Vec<String>>>,
}

/// A fenced code block.
pub struct Block {
    /// The first word after the fence.
    pub language: String,
    pub text: String,
}

/// Returns the root of the checkout.
pub fn checkout() -> PathBuf {
    Path::new(env!("UNDERCURRENT_WORKSPACE")).to_owned()
}

/// Returns the files in a folder of the checkout and its subfolders, as relative paths.
pub fn files(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(checkout().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let entries = entries.map(|entry| entry.expect("an entry"));
    let mut files: Vec<PathBuf> = entries
        .flat_map(|entry| {
            let path = Path::new(folder).join(entry.file_name());
            match entry.path().is_dir() {
                true => files(path.to_str().expect("UTF-8")),
                false => vec![path],
            }
        })
        .collect();
    files.sort();
    files
}

/// Returns the content of a file of the checkout.
pub fn read(path: &Path) -> String {
    fs::read_to_string(checkout().join(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns every page for users and contributors.
pub fn pages() -> Vec<Page> {
    let top = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"].map(PathBuf::from);
    let below = ["docs", "examples", "otel-config", "receiver/fixtures"].into_iter().flat_map(files);
    let is_page = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
    top.into_iter().chain(below.filter(is_page)).map(|path| Page::parse(&path, &read(&path))).collect()
}

/// Returns one page.
pub fn page(path: &str) -> Page {
    Page::parse(Path::new(path), &read(Path::new(path)))
}

impl Page {
    /// Parses a page.
    pub fn parse(path: &Path, text: &str) -> Self {
        let mut page = Self { path: path.to_owned(), ..Self::default() };
        // The text of the current heading, cell or code block.
        let mut current = String::new();
        let mut repeated = BTreeMap::new();
        for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.into_string());
                }
                Event::Start(Tag::Table(_)) => page.tables.push(Vec::new()),
                Event::Start(Tag::TableHead | Tag::TableRow) => page.row(Vec::new()),
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                    let language = info.split_whitespace().next().unwrap_or_default().to_owned();
                    page.blocks.push(Block { language, text: String::new() });
                    current.clear();
                }
                Event::Start(Tag::Heading { .. } | Tag::TableCell) => current.clear(),
                Event::End(TagEnd::Heading(_)) => {
                    page.anchors.insert(anchor(&current, &mut repeated));
                }
                Event::End(TagEnd::TableCell) => page.cell(&current),
                Event::End(TagEnd::CodeBlock) => {
                    if let Some(block) = page.blocks.last_mut().filter(|block| block.text.is_empty()) {
                        block.text.clone_from(&current);
                    }
                }
                Event::Text(text) => current.push_str(&text),
                Event::Code(code) => {
                    current.push_str(&code);
                    page.spans.push(code.into_string());
                }
                _ => {}
            }
        }
        page
    }

    fn row(&mut self, row: Vec<String>) {
        if let Some(table) = self.tables.last_mut() {
            table.push(row);
        }
    }

    fn cell(&mut self, text: &str) {
        if let Some(row) = self.tables.last_mut().and_then(|table| table.last_mut()) {
            row.push(text.trim().to_owned());
        }
    }
}

/// Returns the anchor that GitHub gives to a heading. A repeated heading has a number.
fn anchor(heading: &str, repeated: &mut BTreeMap<String, usize>) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
    let count = repeated.entry(anchor.clone()).or_default();
    *count += 1;
    if *count == 1 { anchor } else { format!("{anchor}-{}", *count - 1) }
}

#[test]
fn pages_are_parsed_as_displayed() {
    let text = "# `run`: a & b, c_d\n\n[x](y.md#z) `code`\n\n## Again\n## Again\n\n\
        | a | b |\n|---|---|\n| `c` | d, `e` |\n\n```sh\none\n\ntwo\n```\n";
    let page = Page::parse(Path::new("page.md"), text);
    assert_eq!(page.anchors, ["run-a--b-c_d", "again", "again-1"].map(String::from).into());
    assert_eq!(page.links, ["y.md#z"]);
    assert_eq!(page.spans, ["run", "code", "c", "e"]);
    assert_eq!(page.tables, [[["a", "b"], ["c", "d, e"]]]);
    assert_eq!(
        page.blocks.iter().map(|block| (&*block.language, &*block.text)).collect::<Vec<_>>(),
        [("sh", "one\n\ntwo\n")]
    );
}
