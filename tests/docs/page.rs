//! Parses pages into blocks, links and headings.

use std::path::{Path, PathBuf};

/// README or a page of the manual.
pub struct Page {
    /// Path relative to the repository.
    pub path: String,
    pub text: String,
}

/// A fenced block.
pub struct Block {
    /// Info string behind the fence: `console gpu`.
    pub info: String,
    pub text: String,
    /// Line number of its fence, from 1.
    pub line: usize,
}

#[derive(Debug)]
pub struct Link {
    pub target: String,
}

impl Block {
    pub fn language(&self) -> &str {
        self.info.split([' ', ',']).next().unwrap_or_default()
    }

    /// Returns the name of the file that the block is a part of: `python export.py`.
    pub fn file(&self) -> Option<&str> {
        self.info.split(' ').skip(1).find(|word| word.contains('.'))
    }

    /// True if the info string contains a word: `console gpu`.
    pub fn is(&self, word: &str) -> bool {
        self.info.split(' ').skip(1).any(|given| given == word)
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns README and the pages in `docs/` in the order of the table of contents, without that table.
pub fn pages() -> Vec<Page> {
    let mut pages: Vec<String> = std::fs::read_dir(root().join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".md") && name != "SUMMARY.md")
        .map(|name| format!("docs/{name}"))
        .collect();
    let summary = Page::read("docs/SUMMARY.md").text;
    pages.sort_by_key(|path| summary.find(path.trim_start_matches("docs/")));
    pages.insert(0, "README.md".to_string());
    pages.iter().map(|path| Page::read(path)).collect()
}

impl Page {
    pub fn read(path: &str) -> Page {
        let text = std::fs::read_to_string(root().join(path))
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        Page {
            path: path.to_string(),
            text,
        }
    }

    pub fn write(&self, text: &str) {
        std::fs::write(root().join(&self.path), text).unwrap();
    }

    pub fn folder(&self) -> PathBuf {
        Path::new(&self.path).parent().unwrap().to_path_buf()
    }

    /// Returns its name in the table of contents, if it is a page of the manual.
    pub fn in_docs(&self) -> Option<String> {
        self.path.strip_prefix("docs/").map(str::to_string)
    }

    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<Block> = None;
        for (index, line) in self.text.lines().enumerate() {
            match (&mut open, line.strip_prefix("```")) {
                (None, Some(info)) => {
                    let (info, text, line) = (info.to_string(), String::new(), index + 1);
                    open = Some(Block { info, text, line });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(block), None) => block.text += &format!("{line}\n"),
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a block has no end", self.path);
        blocks
    }

    /// Returns the text without its blocks.
    fn prose(&self) -> String {
        let mut inside = false;
        let lines = self.text.lines().filter(|line| {
            let is_fence = line.starts_with("```");
            inside ^= is_fence;
            !inside && !is_fence
        });
        lines.map(|line| format!("{line}\n")).collect()
    }

    pub fn links(&self) -> Vec<Link> {
        let prose = self.prose();
        let targets = prose
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split_once(')'));
        targets
            .map(|(target, _)| Link {
                target: target.to_string(),
            })
            .collect()
    }

    pub fn pictures(&self) -> Vec<String> {
        let prose = self.prose();
        let quoted = prose.split('"').map(str::to_string);
        let linked = self.links().into_iter().map(|link| link.target);
        let is_picture = |name: &String| name.ends_with(".svg") || name.ends_with(".png");
        quoted.chain(linked).filter(is_picture).collect()
    }

    /// True if a link's file exists and has the linked heading.
    pub fn leads_to(&self, link: &Link) -> bool {
        let (file, heading) = link.target.split_once('#').unwrap_or((&link.target, ""));
        let path = if file.is_empty() {
            PathBuf::from(&self.path)
        } else {
            self.folder().join(file)
        };
        if !root().join(&path).exists() {
            return false;
        }
        heading.is_empty()
            || Page::read(path.to_str().unwrap())
                .anchors()
                .iter()
                .any(|anchor| anchor == heading)
    }

    /// Returns the anchors of the headings, as GitHub and mdBook generate them.
    fn anchors(&self) -> Vec<String> {
        let prose = self.prose();
        let headings = prose.lines().filter(|line| line.starts_with('#'));
        let anchor = |heading: &str| -> String {
            let words = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = words
                .chars()
                .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        };
        headings.map(anchor).collect()
    }

    /// Compares the text between `<!-- NAME -->` and `<!-- end -->`; `BLESS=1` writes it.
    pub fn expect_section(&self, name: &str, wanted: &str) {
        let (begin, end) = (format!("<!-- {name} -->\n\n"), "\n<!-- end -->");
        let start = self.text.find(&begin).expect("the section begins") + begin.len();
        let length = self.text[start..].find(end).expect("the section ends");
        let found = &self.text[start..start + length];
        if found != wanted && std::env::var_os("BLESS").is_some() {
            let (before, after) = (&self.text[..start], &self.text[start + length..]);
            return self.write(&format!("{before}{wanted}{after}"));
        }
        assert_eq!(found, wanted, "{}: BLESS=1 writes it", self.path);
    }
}
