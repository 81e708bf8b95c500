//! The `rcbox` program: what a store looks like, and its objects, from a command line or a prompt.

mod admin_api;
mod args;
mod certificates;
mod complete;
mod drain;
mod events;
mod interrupt;
mod leader;
mod members;
mod notation;
mod objects;
mod operate;
mod out;
mod rebuild;
mod scan;
mod session;
mod settings;
mod shell;
mod show;
mod split;
mod tablet;
mod time_trace;
mod upgrade;
mod watch;

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use program::{EXIT_USAGE, NoRuntime};

use admin_api::{AdminApiError, Coordinator};
use args::{Command, Member, Options, ProgramCommand, Rebuild, Recovery, Upgrade};
use notation::NotationError;
use out::{Out, Stop};
use session::{Session, Settings};
use settings::SettingError;

/// Why a command did not do what was asked for.
#[derive(Debug, PartialEq)]
pub enum Failure {
    /// Text for standard error.
    Because(String),
    /// The same, of a command line that cannot be meant.
    Usage(String),
    /// Standard output says it already.
    Shown,
    /// Nobody reads the output any more, and nobody has to be told.
    OutputClosed,
    /// The prompt gave the command up.
    Stopped,
}

impl From<AdminApiError> for Failure {
    fn from(error: AdminApiError) -> Failure {
        Failure::Because(error.to_string())
    }
}

impl From<NoRuntime> for Failure {
    fn from(error: NoRuntime) -> Failure {
        Failure::Because(error.to_string())
    }
}

impl From<SettingError> for Failure {
    fn from(error: SettingError) -> Failure {
        Failure::Because(error.to_string())
    }
}

impl From<NotationError> for Failure {
    fn from(error: NotationError) -> Failure {
        Failure::Usage(error.to_string())
    }
}

fn main() -> ExitCode {
    end(start(Options::parse()))
}

fn start(options: Options) -> Result<(), Failure> {
    let on_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    match options.command {
        Some(ProgramCommand::Completion { shell }) => completion(shell),
        Some(ProgramCommand::Certificates(wanted)) => {
            certificates::run(&wanted, &mut Out::new(options.json, Stop::default()))
        }
        Some(ProgramCommand::Store(command)) => {
            let mut session = Session::new(Settings {
                coordinator: coordinator(options.coordinator, options.tls.as_deref())?,
                timeout: options.timeout,
                program: "rcbox ",
                input: true,
            });
            if !confirmed(&command)? {
                return Err(Failure::Because("nothing was done".to_owned()));
            }
            let mut out = Out::new(options.json, Stop::default());
            let result = session.run(command, &mut out);
            // What came before a failure is output, too.
            result.and(out.flush())
        }
        None if !on_terminal => Options::command()
            .error(
                ErrorKind::MissingSubcommand,
                "which command? See rcbox --help (on a terminal, no command gives a prompt)",
            )
            .exit(),
        Some(ProgramCommand::Shell) | None => {
            let settings = Settings {
                coordinator: coordinator(options.coordinator, options.tls.as_deref())?,
                timeout: options.timeout,
                program: "",
                input: false,
            };
            shell::run(settings, options.json)
        }
    }
}

fn coordinator(given: Option<String>, tls: Option<&Path>) -> Result<Coordinator, Failure> {
    let locators = given.ok_or_else(|| {
        Failure::Because(
            "which store? Give the coordinator's locator with -C tcp:host=HOST,port=PORT or in RCBOX_COORDINATOR".to_owned(),
        )
    })?;
    Coordinator::new(locators, tls).map_err(|error| {
        Failure::Because(format!(
            "--tls {}: {error}",
            tls.unwrap_or(Path::new("")).display()
        ))
    })
}

fn end(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) | Err(Failure::OutputClosed) => ExitCode::SUCCESS,
        Err(Failure::Shown | Failure::Stopped) => ExitCode::FAILURE,
        Err(Failure::Because(text)) => {
            complain(&text);
            ExitCode::FAILURE
        }
        Err(Failure::Usage(text)) => {
            complain(&text);
            ExitCode::from(EXIT_USAGE)
        }
    }
}

/// Says on standard error what went wrong, which may have texts of servers in it. Nothing can be done if nobody reads that.
fn complain(text: &str) {
    let text = notation::plain(text.trim_end());
    let _ = writeln!(io::stderr(), "error: {text}");
}

fn completion(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Options::command(), "rcbox", &mut script);
    let mut out = Out::new(false, Stop::default());
    out.bytes(&script)?;
    out.flush()
}

/// The question that a command asks before it destroys something.
fn question(command: &Command) -> Option<String> {
    match command {
        Command::DropTable { table, yes: false } => {
            Some(format!("Drop table {table:?} with all its objects? [y/N] "))
        }
        Command::Recovery(Recovery::AcceptLoss {
            server,
            token: Some(_),
            yes: false,
        }) => Some(format!(
            "Give up for ever what the recovery of server {server} misses? [y/N] "
        )),
        Command::Member(Member::Remove {
            name,
            give_up_copies,
            yes: false,
            ..
        }) => {
            let copies = match give_up_copies {
                true => ", also if copies that it keeps are the last ones",
                false => "",
            };
            Some(format!(
                "Take member {name:?} out of the store for good{copies}? [y/N] "
            ))
        }
        Command::Rebuild(Rebuild::GiveUp {
            members,
            yes: false,
        }) => Some(format!(
            "Make the store again without what the volumes of {} had of its coordinator's state? [y/N] ",
            members.join(", ")
        )),
        Command::Upgrade(Upgrade::Finalize { yes: false }) => Some(
            "Put the newest format in force, so that there is no way back to the version before? [y/N] "
                .to_owned(),
        ),
        _ => None,
    }
}

fn is_yes(answer: &str) -> bool {
    ["y", "yes"].contains(&answer.trim().to_lowercase().as_str())
}

/// Asks, if there is somebody to ask.
fn confirmed(command: &Command) -> Result<bool, Failure> {
    let Some(question) = question(command) else {
        return Ok(true);
    };
    if !io::stdin().is_terminal() {
        return Ok(true);
    }
    let mut answer = String::new();
    write!(io::stderr(), "{question}")
        .and_then(|()| io::stdin().lock().read_line(&mut answer))
        .map_err(|error| Failure::Because(format!("cannot ask ({error}); give --yes")))?;
    Ok(is_yes(&answer))
}
