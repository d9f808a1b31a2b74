//! The user's command line, changed so that it works.

use std::fmt;
use std::path::Path;

use super::python::fixed_path;

/// A changed copy of the user's command line, ready to be pasted into a shell.
#[derive(Clone)]
pub(super) struct CommandLine {
    words: Vec<String>,
}

impl CommandLine {
    /// Returns the command line of this process.
    pub(super) fn given() -> CommandLine {
        let arguments = std::env::args_os().skip(1);
        let words = arguments.map(|word| word.to_string_lossy().into_owned());
        CommandLine {
            words: std::iter::once("onionskin".to_string())
                .chain(words)
                .collect(),
        }
    }

    /// Appends a word.
    pub(super) fn with(mut self, word: &str) -> CommandLine {
        self.words.push(word.to_string());
        self
    }

    /// Appends words.
    pub(super) fn add(&mut self, words: &[&str]) {
        self.words.extend(words.iter().map(ToString::to_string));
    }

    /// Replaces `from` by `to` in the last word that contains it.
    pub(super) fn replace(&mut self, from: &str, to: &str) {
        let found = self.words.iter_mut().rfind(|word| word.contains(from));
        if let Some(word) = found {
            *word = word.replace(from, to);
        }
    }

    /// Removes a file and the flag in front of it.
    pub(super) fn remove(&mut self, file: &str) {
        let is_file = |word: &String| word == file || word.ends_with(&format!("={file}"));
        let Some(at) = self.words.iter().rposition(is_file) else {
            return;
        };
        let has_flag = self
            .words
            .get(at)
            .is_some_and(|word| !word.starts_with('-'));
        self.words.remove(at);
        if has_flag && 0 < at {
            self.words.remove(at - 1);
        }
    }

    /// Replaces a file by the one that a line of Python writes; see [`fixed_path`].
    pub(super) fn with_fixed_file(mut self, path: &Path) -> CommandLine {
        let (old, new) = (path.display().to_string(), fixed_path(path));
        let is_file = |word: &str| word == old || word.ends_with(&format!("={old}"));
        for word in self.words.iter_mut().filter(|word| is_file(word)) {
            *word = word.replace(&old, &new.display().to_string());
        }
        self
    }

    /// Replaces all inputs by `--random`.
    pub(super) fn only_random(mut self) -> CommandLine {
        const FLAGS: &[&str] = &["-i", "--input", "--image", "--shape", "--size", "--preset"];
        while let Some(at) = self
            .words
            .iter()
            .position(|word| FLAGS.contains(&word.as_str()))
        {
            let end = (at + 2).min(self.words.len());
            self.words.drain(at..end);
        }
        self.words.retain(|word| word != "--random");
        self.with("--random")
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.words.iter().map(|word| quoted(word)).collect();
        f.write_str(&words.join(" "))
    }
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_=./,:+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(text: &str) -> CommandLine {
        let words = text.split(' ').map(ToString::to_string);
        CommandLine {
            words: words.collect(),
        }
    }

    #[test]
    fn files_are_removed_with_their_flags() {
        let mut found = command("onionskin run m.pt -i a.npy -i x=b.npy --input=c.npy");
        for file in ["b.npy", "c.npy", "d.npy"] {
            found.remove(file);
        }
        assert_eq!(found.to_string(), "onionskin run m.pt -i a.npy");
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        let found = command("onionskin run")
            .with("my model.pt")
            .with("f32[1]")
            .with("it's");
        assert_eq!(
            found.to_string(),
            "onionskin run 'my model.pt' 'f32[1]' 'it'\\''s'"
        );
    }

    #[test]
    fn random_inputs_stand_in_for_all_others() {
        let found = command("onionskin run m.pt -i a.npy --shape f32[1] --device cpu --random");
        let expected = "onionskin run m.pt --device cpu --random";
        assert_eq!(found.only_random().to_string(), expected);
    }
}
