//! The prompt, and scripts of its commands.

use std::fs::DirBuilder;
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use clap::Parser;
use clap::error::ErrorKind;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};

use super::args::{self, Command, Line, LineCommand, Recovery};
use super::complete::Completions;
use super::interrupt::{Ended, Interrupts};
use super::out::{Out, Stop};
use super::session::{Session, Settings};
use super::{Failure, complain, is_yes, question};

/// Lines that the history keeps.
const HISTORY_LINES: usize = 1000;

/// Commands that take a table first, which `use` may have chosen.
const ON_A_TABLE: [&str; 6] = ["get", "put", "rm", "incr", "scan", "watch"];

/// Reads and carries out commands until the input ends.
pub fn run(settings: Settings, json: bool) -> Result<(), Failure> {
    match io::stdin().is_terminal() {
        true => prompt(settings, json),
        false => script(settings, json),
    }
}

/// What one line asks for.
#[derive(Debug)]
enum Request {
    Nothing,
    Run {
        command: Box<Command>,
        json: bool,
    },
    Use(Option<String>),
    Exit,
    /// Help, to be printed.
    Tell(String),
}

/// A line that is no command.
#[derive(Debug, thiserror::Error)]
enum NotUnderstood {
    #[error("a quote is not closed, or a backslash ends the line")]
    Unfinished,
    /// As the parser of command lines says it.
    #[error("{}", plain_text(.0))]
    NoCommand(#[from] clap::Error),
}

fn plain_text(error: &clap::Error) -> String {
    let text = error.to_string();
    text.strip_prefix("error: ").unwrap_or(&text).to_owned()
}

/// Understands one line, given the table that is in use.
fn understand(line: &str, table: Option<&str>) -> Result<Request, NotUnderstood> {
    let Some(mut words) = shlex::split(line) else {
        return Err(NotUnderstood::Unfinished);
    };
    if words.is_empty() {
        return Ok(Request::Nothing);
    }
    if let Some(table) = table {
        insert_table(&mut words, table);
    }
    match Line::try_parse_from(words) {
        Ok(line) => Ok(match line.command {
            LineCommand::Store(command) => Request::Run {
                command: Box::new(command),
                json: line.json,
            },
            LineCommand::Use { table } => Request::Use(table),
            LineCommand::Exit => Request::Exit,
        }),
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            Ok(Request::Tell(error.to_string()))
        }
        Err(error) => Err(error.into()),
    }
}

/// Puts the table in use after the command, where it takes one. `watch` without a key is about the store.
fn insert_table(words: &mut Vec<String>, table: &str) {
    let Some(at) = words.iter().position(|word| !word.starts_with('-')) else {
        return;
    };
    let has_key = || match Line::try_parse_from(&*words).map(|line| line.command) {
        Ok(LineCommand::Store(Command::Watch(watch))) => !watch.object.is_empty(),
        _ => false,
    };
    let command = words[at].as_str();
    if ON_A_TABLE.contains(&command) && (command != "watch" || has_key()) {
        words.insert(at + 1, table.to_owned());
    }
}

/// Commands from a pipe or file; the first that fails ends it.
fn script(settings: Settings, json: bool) -> Result<(), Failure> {
    let mut session = Session::new(settings);
    let mut table = None;
    for (index, line) in io::stdin().lock().lines().enumerate() {
        let at_line = |text: &str| Failure::Because(format!("line {}: {text}", index + 1));
        let line = line.map_err(|error| at_line(&format!("cannot read it: {error}")))?;
        let mut out = Out::new(json, Stop::default());
        out.is_one_of_many = true;
        let request =
            understand(&line, table.as_deref()).map_err(|error| at_line(&error.to_string()))?;
        let result = match request {
            Request::Nothing => Ok(()),
            Request::Exit => return Ok(()),
            Request::Use(name) => {
                table = name;
                Ok(())
            }
            Request::Tell(text) => out.text(&text),
            Request::Run { command, json } => {
                out.json |= json;
                session.run(*command, &mut out)
            }
        };
        result.and(out.flush()).map_err(|failure| match failure {
            Failure::Because(text) | Failure::Usage(text) => at_line(&text),
            Failure::Shown => at_line("a member is not up"),
            other => other,
        })?;
    }
    Ok(())
}

/// Commands from a person.
fn prompt(settings: Settings, json: bool) -> Result<(), Failure> {
    let mut prompt = Prompt::new(settings, json)?;
    let _ = writeln!(io::stderr(), "`help` lists the commands; Ctrl-D leaves.");
    while prompt.turn()? {}
    Ok(())
}

struct Prompt {
    editor: Editor<Completions, FileHistory>,
    history: Option<PathBuf>,
    interrupts: Interrupts,
    settings: Settings,
    session: Session,
    table: Option<String>,
    json: bool,
}

impl Prompt {
    fn new(settings: Settings, json: bool) -> Result<Prompt, Failure> {
        let failed = |error: ReadlineError| Failure::Because(format!("no prompt: {error}"));
        let config = Config::builder()
            .max_history_size(HISTORY_LINES)
            .and_then(|config| config.history_ignore_dups(true))
            .map_err(failed)?
            .history_ignore_space(true)
            .completion_type(CompletionType::List)
            .build();
        let mut editor = Editor::with_config(config).map_err(failed)?;
        editor.set_helper(Some(Completions::new(&settings.coordinator)));
        let history = history_file();
        if let Some(path) = &history {
            // There is none the first time.
            let _ = editor.load_history(path);
        }
        Ok(Prompt {
            editor,
            history,
            interrupts: Interrupts::new()?,
            session: Session::new(settings.clone()),
            settings,
            table: None,
            json,
        })
    }

    /// Reads and carries out what was entered; false if it was the last.
    fn turn(&mut self) -> Result<bool, Failure> {
        let prompt = match &self.table {
            Some(table) => format!("rcbox {table}> "),
            None => "rcbox> ".to_owned(),
        };
        self.interrupts.forget();
        let line = match self.editor.readline(&prompt) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => return Ok(true),
            Err(ReadlineError::Eof) => return Ok(false),
            Err(error) => return Err(Failure::Because(format!("cannot read a line: {error}"))),
        };
        self.remember(&line);
        // Text that was pasted may have several.
        for line in line.lines() {
            if !self.line(line)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Carries out one line; false if it was the last.
    fn line(&mut self, line: &str) -> Result<bool, Failure> {
        match understand(line, self.table.as_deref()) {
            Ok(Request::Nothing) => {}
            Ok(Request::Exit) => return Ok(false),
            Ok(Request::Use(table)) => self.choose(table),
            Ok(Request::Tell(text)) => {
                let _ = write!(io::stdout(), "{text}");
            }
            Ok(Request::Run { command, json }) => self.carry_out(*command, json)?,
            Err(error) => complain(&error.to_string()),
        }
        Ok(true)
    }

    fn choose(&mut self, table: Option<String>) {
        self.table = table;
        if let Some(helper) = self.editor.helper_mut() {
            helper.table_in_use = self.table.is_some();
        }
    }

    fn remember(&mut self, line: &str) {
        let added = self.editor.add_history_entry(line);
        let Some(path) = &self.history else { return };
        if !matches!(added, Ok(true)) {
            return;
        }
        if let Err(error) = self.editor.append_history(path) {
            complain(&format!(
                "cannot write the history to {}: {error}; it is kept for this prompt only",
                path.display()
            ));
            self.history = None;
        }
    }

    fn carry_out(&mut self, command: Command, json: bool) -> Result<(), Failure> {
        if let Some(question) = question(&command)
            && !matches!(self.editor.readline(&question), Ok(answer) if is_yes(&answer))
        {
            complain("nothing was done");
            return Ok(());
        }
        let changes = changes(&command);
        let session = std::mem::replace(&mut self.session, Session::new(self.settings.clone()));
        match self.interrupts.run(session, command, self.json || json)? {
            Some(Ended { session, result }) => {
                self.session = session;
                match result {
                    Err(Failure::Because(text) | Failure::Usage(text)) => complain(&text),
                    Err(failure @ Failure::OutputClosed) => return Err(failure),
                    Ok(()) | Err(Failure::Shown | Failure::Stopped) => {}
                }
            }
            None => {
                // Below the terminal's ^C.
                let _ = writeln!(io::stderr());
                if changes {
                    complain("given up; the change may take effect all the same");
                }
            }
        }
        Ok(())
    }
}

/// Whether a command changes the store.
fn changes(command: &Command) -> bool {
    match command {
        Command::Status { .. }
        | Command::Tables
        | Command::Servers
        | Command::Events
        | Command::Trace { .. }
        | Command::Get(_)
        | Command::Scan(_)
        | Command::Watch(_)
        | Command::Settings(args::Settings::Show)
        | Command::Recovery(Recovery::AcceptLoss { token: None, .. }) => false,
        Command::Put(_)
        | Command::Rm(_)
        | Command::Incr(_)
        | Command::CreateTable { .. }
        | Command::DropTable { .. }
        | Command::Recovery(_)
        | Command::Rebuild(_)
        | Command::Member(_)
        | Command::Upgrade(_)
        | Command::Settings(_)
        | Command::Tablet(_)
        | Command::Split { .. } => true,
    }
}

/// Where the history is kept, in a folder that only its owner sees; none if there is no home.
fn history_file() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = match set("XDG_STATE_HOME") {
        Some(state) => PathBuf::from(state),
        None => PathBuf::from(set("HOME")?).join(".local/state"),
    };
    let folder = state.join("rcbox");
    // Writing the history says what is wrong with it.
    let _ = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder);
    Some(folder.join("history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str, table: Option<&str>) -> String {
        match understand(line, table) {
            Ok(Request::Run { command, json }) => format!("{command:?} json={json}"),
            Ok(other) => format!("{other:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn lines_are_words_as_in_a_shell() {
        for (line, part) in [
            ("", "Nothing"),
            ("   # a comment", "Nothing"),
            (
                "put fruit 'an apple' \"dark red\"",
                "key: \"an apple\", value: Some(\"dark red\")",
            ),
            ("--json status", "json=true"),
            ("exit", "Exit"),
            ("quit", "Exit"),
            ("use fruit", "Use(Some(\"fruit\"))"),
            ("use", "Use(None)"),
            ("help", "create-table"),
            ("help get", "rcbox get fruit apple"),
            ("put fruit 'an apple", "quote"),
            ("frobnicate", "unrecognized subcommand"),
            ("shell", "unrecognized subcommand"),
        ] {
            let shown = shown(line, None);
            assert!(shown.contains(part), "{line}: {shown}");
            assert!(!shown.starts_with("error: "), "{shown}");
        }
    }

    #[test]
    fn the_table_in_use_is_inserted_where_a_table_belongs() {
        let fruit = Some("fruit");
        for (short, long) in [
            ("get apple pear", "get fruit apple pear"),
            ("--json get apple", "--json get fruit apple"),
            ("put apple green", "put fruit apple green"),
            ("rm --hex 00", "rm fruit --hex 00"),
            ("incr visits -1", "incr fruit visits -1"),
            ("scan --limit 3", "scan fruit --limit 3"),
            ("watch", "watch"),
            ("watch --interval 2", "watch --interval 2"),
            ("watch apple", "watch fruit apple"),
            ("watch --interval 2 apple", "watch fruit --interval 2 apple"),
            ("drop-table vegetables", "drop-table vegetables"),
            ("tables", "tables"),
        ] {
            let understood = shown(short, fruit);
            assert!(understood.contains("json="), "{short}: {understood}");
            assert_eq!(understood, shown(long, None), "{short}");
        }
    }
}
