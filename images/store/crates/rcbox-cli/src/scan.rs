//! The objects of a table, one line each, as they come.

use client::Keyed;
use serde_json::{Map, Value, json};

use super::Failure;
use super::args::Scan;
use super::notation::KeyNotation;
use super::out::Out;
use super::session::Session;

pub fn run(session: &mut Session, scan: &Scan, out: &mut Out) -> Result<(), Failure> {
    let notation = scan.keys.notation();
    let prefix = match &scan.prefix {
        Some(prefix) => notation.read(prefix)?,
        None => Vec::new(),
    };
    let table = session.table(&scan.table)?;
    let objects = session.cluster()?.scan(table);
    let objects = match scan.keys_only {
        true => objects.keys_only(),
        false => objects,
    };
    let limit = scan.limit.unwrap_or(u64::MAX);
    let mut printed = 0;
    let mut problem = None;
    for object in objects {
        match object {
            Ok(object) if is_wanted(&object, &prefix) => {
                if printed == limit {
                    break;
                }
                printed += 1;
                out.text(&match out.json {
                    true => json_of(scan, notation, &object).to_string(),
                    false => line_of(scan, notation, &object),
                })?;
            }
            Ok(_) => out.check()?,
            Err(error) => {
                problem = Some(error);
                break;
            }
        }
    }
    match problem.map(|error| session.about_table(&error, &scan.table)) {
        None => Ok(()),
        Some(Failure::Because(text)) if printed > 0 => Err(Failure::Because(format!(
            "the list is incomplete, it ends after {printed} objects: {text}"
        ))),
        Some(failure) => Err(failure),
    }
}

fn key(object: &Keyed) -> &[u8] {
    object.keys.first().map_or(&[], Vec::as_slice)
}

fn is_wanted(object: &Keyed, prefix: &[u8]) -> bool {
    key(object).starts_with(prefix)
}

fn line_of(scan: &Scan, notation: KeyNotation, object: &Keyed) -> String {
    let key = notation.show(key(object));
    match scan.keys_only {
        true => key,
        false => {
            let value = scan.values.notation.show(&object.value);
            format!("{key}\t{}\t{value}", object.version)
        }
    }
}

/// `otherKeys` are those of indexes, each an object with `key` or `keyHex`.
fn json_of(scan: &Scan, notation: KeyNotation, object: &Keyed) -> Value {
    let mut shown = Map::new();
    notation.put_json(&mut shown, "key", key(object));
    let others = object.keys.iter().skip(1).map(|key| {
        let mut other = Map::new();
        notation.put_json(&mut other, "key", key);
        Value::Object(other)
    });
    let others: Vec<_> = others.collect();
    if !others.is_empty() {
        shown.insert("otherKeys".to_owned(), Value::Array(others));
    }
    shown.insert("version".to_owned(), json!(object.version));
    if !scan.keys_only {
        scan.values.notation.put_json(&mut shown, &object.value);
    }
    Value::Object(shown)
}
