//! Looks for circles of modules, and for methods outside the folder of their type.
//!
//! usage: structure KNOWN CRATE...
//!
//! KNOWN is a file with those that are known to be there, a line each; CRATE is the folder of a crate. Ends with 1 and says what to do if there is one
//! that is not known, or one that is gone and still listed.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

use structure::modules::Crate;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let Some((known, folders)) = arguments.split_first().filter(|(_, rest)| !rest.is_empty())
    else {
        eprintln!("usage: structure KNOWN CRATE...");
        return ExitCode::from(2);
    };
    match compare(known, folders) {
        Ok(differences) if differences.is_empty() => ExitCode::SUCCESS,
        Ok(differences) => {
            differences.iter().for_each(|line| println!("{line}"));
            ExitCode::FAILURE
        }
        Err(text) => {
            eprintln!("structure: {text}");
            ExitCode::from(2)
        }
    }
}

/// What is there and not known, and what is known and not there.
fn compare(known: &str, folders: &[String]) -> Result<Vec<String>, String> {
    let text = fs::read_to_string(known).map_err(|error| format!("{known}: {error}"))?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let listed: BTreeSet<String> = lines.map(str::to_owned).collect();
    let mut found = BTreeSet::new();
    for folder in folders {
        found.extend(Crate::read(Path::new(folder))?.findings());
    }
    let new = found.difference(&listed);
    let new = new.map(|line| format!("new: {line}: take it apart, see docs/architecture.md"));
    let gone = listed.difference(&found);
    Ok(new
        .chain(gone.map(|line| format!("gone: {line}: remove this line from {known}")))
        .collect())
}
