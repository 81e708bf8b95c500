//! Commands on objects.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;

use client::{Error, Object, ReadObject, RejectRules, TableId};
use serde_json::{Map, Value, json};

use super::args::{Get, Incr, Put, Rm, if_version};
use super::notation::{KeyNotation, NotationError, ValueNotation, escape, for_terminal};
use super::out::Out;
use super::session::Session;
use super::{Failure, complain};

/// Reads keys or values from the command line; one that cannot be read is wrong use.
fn read_all<T>(
    arguments: &[T],
    read: impl Fn(&T) -> Result<Vec<u8>, NotationError>,
) -> Result<Vec<Vec<u8>>, Failure> {
    Ok(arguments.iter().map(read).collect::<Result<_, _>>()?)
}

impl Session {
    /// The id of a table.
    pub fn table(&mut self, name: &str) -> Result<TableId, Failure> {
        let id = self.cluster()?.table_id(name);
        id.map_err(|error| self.about_table(&error, name))
    }
}

pub fn get(session: &mut Session, get: &Get, out: &mut Out) -> Result<(), Failure> {
    let notation = get.keys.notation();
    let keys = read_all(&get.key, |key| notation.read(key))?;
    if get.raw && keys.len() > 1 {
        let text = "--raw goes with one key: nothing would separate the values";
        return Err(Failure::Usage(text.to_owned()));
    }
    let table = session.table(&get.table)?;
    if let ([key], false, false) = (&keys[..], out.json, get.version_only) {
        let object = session.cluster()?.read(table, key);
        let object = object.map_err(|error| session.about_object(&error, &get.table, key))?;
        return one_value(get, &object, out);
    }
    let answers = match &keys[..] {
        [key] => vec![session.cluster()?.read(table, key)],
        _ => {
            let rules = RejectRules::default();
            let wanted: Vec<_> = keys
                .iter()
                .map(|key| ReadObject { table, key, rules })
                .collect();
            let answers = session.cluster()?.multi_read(&wanted);
            answers.map_err(|error| session.about_table(&error, &get.table))?
        }
    };
    let mut failures = Failures::default();
    for (key, answer) in keys.iter().zip(answers) {
        match answer {
            Ok(object) => one_of_several(get, key, &object, keys.len() > 1, out)?,
            Err(error) => {
                if out.json {
                    out.json_line(&failed_json(notation, key, &error))?;
                }
                failures.add(&error, session.about_object(&error, &get.table, key))?;
            }
        }
    }
    failures.end(keys.len(), out)
}

fn one_value(get: &Get, object: &Object, out: &mut Out) -> Result<(), Failure> {
    let raw = get.raw || !(out.terminal || out.is_one_of_many);
    match get.values.notation {
        ValueNotation::Text if raw => out.bytes(&object.value),
        ValueNotation::Text if out.terminal => out.text(&for_terminal(&object.value)),
        notation => out.text(&notation.show(&object.value)),
    }
}

fn one_of_several(
    get: &Get,
    key: &[u8],
    object: &Object,
    several: bool,
    out: &mut Out,
) -> Result<(), Failure> {
    let keys = get.keys.notation();
    if out.json {
        let mut shown = Map::new();
        keys.put_json(&mut shown, "key", key);
        shown.insert("version".to_owned(), json!(object.version));
        if !get.version_only {
            get.values.notation.put_json(&mut shown, &object.value);
        }
        return out.json_line(&Value::Object(shown));
    }
    let shown = match get.version_only {
        true => object.version.to_string(),
        false => get.values.notation.show(&object.value),
    };
    match several {
        true => out.text(&format!("{}\t{shown}", keys.show(key))),
        false => out.text(&shown),
    }
}

/// What could not be done among several.
#[derive(Default)]
struct Failures {
    texts: Vec<String>,
}

impl Failures {
    /// Fails if the store did not answer: then it would not do so for the next object either.
    fn add(&mut self, error: &Error, failure: Failure) -> Result<(), Failure> {
        match failure {
            Failure::Because(text) if error.status().is_some() => {
                self.texts.push(text);
                Ok(())
            }
            failure => Err(failure),
        }
    }

    /// Output first, then a line for each failure; the last is the command's.
    fn end(mut self, of: usize, out: &mut Out) -> Result<(), Failure> {
        out.flush()?;
        let count = self.texts.len();
        match self.texts.pop() {
            None => Ok(()),
            Some(only) if of == 1 => Err(Failure::Because(only)),
            Some(last) => {
                for text in &self.texts {
                    complain(text);
                }
                complain(&last);
                Err(Failure::Because(format!("{count} of {of} failed")))
            }
        }
    }
}

fn failed_json(notation: KeyNotation, key: &[u8], error: &Error) -> Value {
    let mut shown = Map::new();
    notation.put_json(&mut shown, "key", key);
    let why = match error.status() {
        Some(status) => status.to_string(),
        None => error.to_string(),
    };
    shown.insert("error".to_owned(), json!(why));
    Value::Object(shown)
}

pub fn put(session: &mut Session, put: &Put, out: &mut Out) -> Result<(), Failure> {
    let key = put.keys.notation().read(&put.key)?;
    let value = value_of(put, session.settings.input)?;
    let table = session.table(&put.table)?;
    let version = session
        .cluster()?
        .write_if(table, &key, &value, &put.conditions.rules());
    let version = version.map_err(|error| session.about_object(&error, &put.table, &key))?;
    match out.json {
        true => out.json_line(&json!({ "version": version })),
        false => out.text(&version.to_string()),
    }
}

fn value_of(put: &Put, input: bool) -> Result<Vec<u8>, Failure> {
    let notation = put.values.notation;
    let bytes = match (&put.value, &put.file) {
        (Some(value), _) => return Ok(notation.read(value)?),
        (None, Some(path)) => {
            let name = path.display().to_string();
            let file = File::open(path)
                .map_err(|error| Failure::Because(format!("cannot open {name}: {error}")))?;
            read_value(file, &name)?
        }
        (None, None) if !input => {
            let text = "give the value after the key, or --file PATH: standard input has the commands here";
            return Err(Failure::Usage(text.to_owned()));
        }
        (None, None) => {
            let input = io::stdin().lock();
            if input.is_terminal() {
                eprintln!("the value comes from standard input; Ctrl-D ends it");
            }
            read_value(input, "standard input")?
        }
    };
    let text = match notation {
        ValueNotation::Text => return Ok(bytes),
        _ => bytes.trim_ascii(),
    };
    let value = notation.read(OsStr::from_bytes(text));
    Ok(value?)
}

/// A value from a file or pipe, as long as it may be one.
fn read_value(input: impl Read, name: &str) -> Result<Vec<u8>, Failure> {
    let limit = wire::rpc::MAX_VALUE_BYTES as u64;
    let mut value = Vec::new();
    input
        .take(limit + 1)
        .read_to_end(&mut value)
        .map_err(|error| Failure::Because(format!("cannot read {name}: {error}")))?;
    match value.len() as u64 > limit {
        true => Err(Failure::Because(format!(
            "{name} is longer than a value may be, {limit} bytes; split it over several objects"
        ))),
        false => Ok(value),
    }
}

pub fn rm(session: &mut Session, rm: &Rm, out: &mut Out) -> Result<(), Failure> {
    let notation = rm.keys.notation();
    let keys = read_all(&rm.key, |key| notation.read(key))?;
    if rm.if_version.is_some() && keys.len() > 1 {
        let text = "--if-version goes with one key: objects have versions of their own";
        return Err(Failure::Usage(text.to_owned()));
    }
    let rules = if_version(rm.if_version);
    let table = session.table(&rm.table)?;
    // One after the other: these removals take effect once, those of a multi-op may be tried again and find nothing.
    let mut failures = Failures::default();
    for key in &keys {
        let answer = session.cluster()?.remove_if(table, key, &rules);
        let text = match answer {
            Ok(version) if version > 0 && out.json => {
                let mut shown = Map::new();
                notation.put_json(&mut shown, "key", key);
                shown.insert("version".to_owned(), json!(version));
                Value::Object(shown).to_string()
            }
            Ok(version) if version > 0 && keys.len() == 1 => version.to_string(),
            Ok(version) if version > 0 => format!("{}\t{version}", notation.show(key)),
            Ok(_) => {
                failures.texts.push(format!(
                    "there was no object \"{}\" in table {:?}",
                    escape(key),
                    rm.table
                ));
                continue;
            }
            Err(error) => {
                failures.add(&error, session.about_object(&error, &rm.table, key))?;
                continue;
            }
        };
        out.text(&text)?;
    }
    failures.end(keys.len(), out)
}

pub fn incr(session: &mut Session, incr: &Incr, out: &mut Out) -> Result<(), Failure> {
    let key = incr.keys.notation().read(&incr.key)?;
    let rules = incr.conditions.rules();
    let by = &incr.by;
    let (version, value) = if incr.float {
        let wrong = || Failure::Usage(format!("{by:?} is not a number"));
        let by: f64 = by.parse().map_err(|_| wrong())?;
        let table = session.table(&incr.table)?;
        let answer = session.cluster()?.increment_f64_if(table, &key, by, &rules);
        let answer = answer.map_err(|error| session.about_object(&error, &incr.table, &key))?;
        (answer.version, json!(answer.value))
    } else {
        let by: i64 = by.parse().map_err(|_| {
            Failure::Usage(format!(
                "{by:?} is not a whole number of 64 bits; --float makes floating-point counters"
            ))
        })?;
        let table = session.table(&incr.table)?;
        let answer = session.cluster()?.increment_if(table, &key, by, &rules);
        let answer = answer.map_err(|error| session.about_object(&error, &incr.table, &key))?;
        (answer.version, json!(answer.value))
    };
    match out.json {
        true => out.json_line(&json!({ "version": version, "value": value })),
        false => out.text(&value.to_string()),
    }
}
