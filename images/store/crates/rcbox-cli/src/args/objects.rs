//! What is asked of the objects of a table.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use client::RejectRules;

use super::super::notation::{KeyNotation, ValueNotation};
use super::seconds;

/// How keys are written.
#[derive(Args, Debug)]
pub struct Keys {
    /// Keys are written and shown in hexadecimal digits
    #[arg(long, short = 'x')]
    hex: bool,
    /// Keys are written with the escapes \xHH, \n, \r, \t and \\, as they are shown
    #[arg(long, short = 'e', conflicts_with = "hex")]
    escaped: bool,
}

impl Keys {
    pub fn notation(&self) -> KeyNotation {
        match (self.hex, self.escaped) {
            (true, _) => KeyNotation::Hex,
            (_, true) => KeyNotation::Escaped,
            _ => KeyNotation::Text,
        }
    }
}

/// How values are written.
#[derive(Args, Debug)]
pub struct Values {
    /// How values are written and shown
    #[arg(
        long = "as",
        value_enum,
        default_value = "text",
        value_name = "NOTATION"
    )]
    pub notation: ValueNotation,
}

/// What an object must be like for a change to happen.
#[derive(Args, Debug)]
#[group(multiple = false)]
pub struct Conditions {
    /// Only if there is no such object yet
    #[arg(long)]
    if_absent: bool,
    /// Only if there is such an object
    #[arg(long)]
    if_exists: bool,
    /// Only if the object has this version
    #[arg(long, value_name = "VERSION")]
    if_version: Option<u64>,
}

impl Conditions {
    pub fn rules(&self) -> RejectRules {
        let version = if_version(self.if_version);
        RejectRules {
            exists: self.if_absent,
            doesnt_exist: self.if_exists || version.doesnt_exist,
            ..version
        }
    }
}

/// Rejects objects of another version, and absent ones.
pub fn if_version(version: Option<u64>) -> RejectRules {
    RejectRules {
        given_version: version.unwrap_or(0),
        version_ne_given: version.is_some(),
        doesnt_exist: version.is_some(),
        ..RejectRules::default()
    }
}

#[derive(Args, Debug)]
pub struct Get {
    pub table: String,
    #[arg(required = true, value_name = "KEY")]
    pub key: Vec<OsString>,
    #[command(flatten)]
    pub keys: Keys,
    #[command(flatten)]
    pub values: Values,
    /// Print the version instead of the value
    #[arg(long)]
    pub version_only: bool,
    /// Write the bytes of the value as they are, wherever they go; for one key
    #[arg(long, conflicts_with_all = ["version_only", "json", "notation"])]
    pub raw: bool,
}

#[derive(Args, Debug)]
pub struct Put {
    pub table: String,
    pub key: OsString,
    /// The value; standard input without it
    #[arg(allow_negative_numbers = true)]
    pub value: Option<OsString>,
    /// Read the value from this file
    #[arg(long, value_name = "PATH", conflicts_with = "value", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub keys: Keys,
    #[command(flatten)]
    pub values: Values,
    #[command(flatten)]
    pub conditions: Conditions,
}

#[derive(Args, Debug)]
pub struct Rm {
    pub table: String,
    #[arg(required = true, value_name = "KEY")]
    pub key: Vec<OsString>,
    #[command(flatten)]
    pub keys: Keys,
    /// Only if the object has this version; for one key
    #[arg(long, value_name = "VERSION")]
    pub if_version: Option<u64>,
}

#[derive(Args, Debug)]
pub struct Incr {
    pub table: String,
    pub key: OsString,
    /// How much is added
    #[arg(default_value = "1", allow_negative_numbers = true)]
    pub by: String,
    /// The counter is a floating-point number
    #[arg(long)]
    pub float: bool,
    #[command(flatten)]
    pub keys: Keys,
    #[command(flatten)]
    pub conditions: Conditions,
}

#[derive(Args, Debug)]
pub struct Scan {
    pub table: String,
    /// Read and print keys only
    #[arg(long)]
    pub keys_only: bool,
    /// End after this many objects
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
    /// Only keys that start like this; filtered here, after reading all
    #[arg(long, value_name = "KEY")]
    pub prefix: Option<OsString>,
    #[command(flatten)]
    pub keys: Keys,
    #[command(flatten)]
    pub values: Values,
}

#[derive(Args, Debug)]
pub struct Watch {
    /// One object; without it, the store
    #[arg(value_names = ["TABLE", "KEY"], num_args = 0..=2)]
    pub object: Vec<OsString>,
    /// Time between two looks
    #[arg(long, short = 'n', default_value = "1", value_name = "SECONDS", value_parser = seconds)]
    pub interval: Duration,
    /// End after this many outputs
    #[arg(long, value_name = "COUNT")]
    pub count: Option<u64>,
    #[command(flatten)]
    pub keys: Keys,
    #[command(flatten)]
    pub values: Values,
}
