//! Completion in the prompt: commands, options, and names of tables.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use clap::CommandFactory;
use rustyline::completion::{Completer, Pair};
use rustyline::{Context, Helper};
use rustyline::{highlight::Highlighter, hint::Hinter, validate::Validator};

use super::admin_api::{self, Coordinator};
use super::args::Line;
use super::notation::is_shown;

/// How shells get completion of their own.
pub const SCRIPTS: &str = "\
Examples:
  rcbox completion bash > ~/.local/share/bash-completion/completions/rcbox
  rcbox completion zsh > ~/.zfunc/_rcbox         with ~/.zfunc in fpath, before compinit
  rcbox completion fish > ~/.config/fish/completions/rcbox.fish";

/// Names of tables are asked for again after this long.
const TABLES_AGE: Duration = Duration::from_secs(3);

/// Commands whose first argument is a table.
const TABLE_FIRST: [&str; 9] = [
    "get",
    "put",
    "rm",
    "incr",
    "scan",
    "watch",
    "drop-table",
    "split",
    "use",
];

/// Knows what may come next.
pub struct Completions {
    coordinator: Coordinator,
    /// A table was chosen, so that the first argument is mostly a key.
    pub table_in_use: bool,
    tables: RefCell<Option<(Instant, Vec<String>)>>,
}

impl Completions {
    pub fn new(coordinator: &Coordinator) -> Completions {
        Completions {
            coordinator: coordinator.clone(),
            table_in_use: false,
            tables: RefCell::new(None),
        }
    }

    /// Names of tables, at most [`TABLES_AGE`] old; none if the coordinator does not answer.
    fn tables(&self) -> Vec<String> {
        let mut cache = self.tables.borrow_mut();
        if let Some((at, names)) = &*cache
            && at.elapsed() < TABLES_AGE
        {
            return names.clone();
        }
        let tables = admin_api::tables(&self.coordinator).unwrap_or_default();
        let names: Vec<_> = presentable(tables.into_iter().map(|table| table.name)).collect();
        *cache = Some((Instant::now(), names.clone()));
        names
    }
}

/// Names that can be put on a terminal as they are. Others are for whoever types them.
fn presentable(names: impl Iterator<Item = String>) -> impl Iterator<Item = String> {
    names.filter(|name| name.chars().all(is_shown))
}

/// What may stand where `word` begins, after `before`.
fn candidates(
    before: &[&str],
    word: &str,
    table_in_use: bool,
    tables: impl Fn() -> Vec<String>,
) -> Vec<String> {
    let mut root = Line::command();
    root.build();
    let command = before.iter().find(|word| !word.starts_with('-'));
    let Some(name) = command else {
        return root
            .get_subcommands()
            .map(|command| command.get_name().to_owned())
            .collect();
    };
    let Some(command) = root.find_subcommand(name) else {
        return Vec::new();
    };
    if word.starts_with('-') {
        let options = command.get_arguments().filter_map(clap::Arg::get_long);
        return options.map(|option| format!("--{option}")).collect();
    }
    match before {
        ["help"] => root
            .get_subcommands()
            .map(|command| command.get_name().to_owned())
            .collect(),
        [.., last] if last == name && TABLE_FIRST.contains(name) => {
            let explicit = ["drop-table", "split", "use"].contains(name);
            match table_in_use && !explicit {
                true => Vec::new(),
                false => tables(),
            }
        }
        _ => Vec::new(),
    }
}

impl Completer for Completions {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let typed = &line[..pos];
        let start = typed.rfind(char::is_whitespace).map_or(0, |at| {
            at + typed[at..].chars().next().map_or(1, char::len_utf8)
        });
        let before: Vec<_> = typed[..start].split_whitespace().collect();
        let word = &typed[start..];
        let found = candidates(&before, word, self.table_in_use, || self.tables());
        let pairs = found.into_iter().filter_map(|candidate| {
            let quoted = shlex::try_quote(&candidate).ok()?.into_owned();
            quoted.starts_with(word).then(|| Pair {
                display: candidate,
                replacement: quoted + " ",
            })
        });
        Ok((start, pairs.collect()))
    }
}

impl Helper for Completions {}
impl Hinter for Completions {
    type Hint = String;
}
impl Highlighter for Completions {}
impl Validator for Completions {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_terminal_would_obey_are_not_offered() {
        let names = ["fruit", "a\x1b[2J", "a\u{202e}", "caf\u{e9}", "a\nb"].map(str::to_owned);
        let offered: Vec<_> = presentable(names.into_iter()).collect();
        assert_eq!(offered, ["fruit", "caf\u{e9}"]);
    }

    fn found(before: &[&str], word: &str, table_in_use: bool) -> Vec<String> {
        candidates(before, word, table_in_use, || vec!["fruit".to_owned()])
    }

    #[test]
    fn commands_options_and_tables() {
        let commands = found(&[], "", false);
        for command in ["get", "create-table", "use", "exit", "help"] {
            assert!(commands.iter().any(|found| found == command), "{command}");
        }
        assert_eq!(found(&["help"], "", false), commands);
        assert_eq!(found(&["get"], "", false), ["fruit"]);
        assert_eq!(found(&["--json", "get"], "fr", false), ["fruit"]);
        assert!(found(&["get"], "", true).is_empty());
        assert_eq!(found(&["drop-table"], "", true), ["fruit"]);
        assert!(found(&["get", "fruit"], "", false).is_empty());
        assert!(found(&["tables"], "", false).is_empty());
        assert!(found(&["nonsense"], "", false).is_empty());
        let options = found(&["scan", "fruit"], "--", false);
        for option in ["--keys-only", "--json", "--hex"] {
            assert!(options.iter().any(|found| found == option), "{options:?}");
        }
    }
}
