//! Looks for circles of modules, and for methods outside the folder of their type.
//!
//! usage: structure CRATE...
//!
//! CRATE is the folder of a crate. Ends with 1 if there is such a thing, and with 2 if a file cannot be read.

use std::env;
use std::path::Path;
use std::process::ExitCode;

use structure::modules::Crate;

fn main() -> ExitCode {
    let folders: Vec<String> = env::args().skip(1).collect();
    if folders.is_empty() {
        eprintln!("usage: structure CRATE...");
        return ExitCode::from(2);
    }
    match findings(&folders) {
        Ok(findings) if findings.is_empty() => ExitCode::SUCCESS,
        Ok(findings) => {
            for finding in findings {
                println!("{finding}: take it apart, see docs/architecture.md");
            }
            ExitCode::FAILURE
        }
        Err(text) => {
            eprintln!("structure: {text}");
            ExitCode::from(2)
        }
    }
}

fn findings(folders: &[String]) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for folder in folders {
        all.extend(Crate::read(Path::new(folder))?.findings());
    }
    Ok(all)
}
