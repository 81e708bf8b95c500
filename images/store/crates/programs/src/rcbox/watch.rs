//! The store, or one object, again and again.

use std::ffi::OsStr;

use serde_json::{Map, Value, json};

use super::args::Watch;
use super::out::Out;
use super::session::Session;
use super::show::{self, status_json};
use super::{Failure, admin_api, complain};

pub fn run(session: &mut Session, watch: &Watch, out: &mut Out) -> Result<(), Failure> {
    match &watch.object[..] {
        [] => store(session, watch, out),
        [table, key] => match table.to_str() {
            Some(table) => object(session, watch, table, key, out),
            None => Err(Failure::Usage(format!(
                "{table:?} is not the name of a table: it is not UTF-8"
            ))),
        },
        _ => Err(Failure::Usage(
            "watch takes a table and a key, or neither of both".to_owned(),
        )),
    }
}

/// Shows an object, and again whenever its version has changed.
fn object(
    session: &mut Session,
    watch: &Watch,
    table_name: &str,
    key: &OsStr,
    out: &mut Out,
) -> Result<(), Failure> {
    let notation = watch.keys.notation();
    let key = notation.read(key).map_err(Failure::Usage)?;
    let table = session.table(table_name)?;
    let mut shown_version = None;
    let mut outputs = 0;
    loop {
        let object = match session.cluster()?.read(table, &key) {
            Ok(object) => Some(object),
            Err(error) if error.status() == Some(client::Status::ObjectDoesntExist) => None,
            Err(error) => return Err(session.about_object(&error, table_name, &key)),
        };
        let version = object.as_ref().map_or(0, |object| object.version);
        if shown_version != Some(version) {
            shown_version = Some(version);
            outputs += 1;
            let value = object.map(|object| object.value);
            if out.json {
                let mut shown = Map::new();
                notation.put_json(&mut shown, "key", &key);
                shown.insert("version".to_owned(), json!(version));
                if let Some(value) = &value {
                    watch.values.notation.put_json(&mut shown, value);
                }
                out.json_line(&Value::Object(shown))?;
            } else {
                out.text(&match value {
                    Some(value) => format!("{version}\t{}", watch.values.notation.show(&value)),
                    None => "0\t(absent)".to_owned(),
                })?;
            }
        }
        if watch.count.is_some_and(|count| outputs >= count) {
            return Ok(());
        }
        out.pause(watch.interval)?;
    }
}

/// Shows the store, until it is told to end.
fn store(session: &mut Session, watch: &Watch, out: &mut Out) -> Result<(), Failure> {
    let in_place = out.has_cursor && !out.json;
    let look = || admin_api::status(&session.settings.coordinator);
    // Where nothing was ever to be seen, there is nothing to wait for.
    let first = look()?;
    let mut seen: Result<_, String> = Ok(first);
    let mut outputs = 0;
    loop {
        match &seen {
            Ok(status) if out.json => out.json_line(&status_json(status))?,
            Ok(status) if in_place => {
                let shown = show::status(status, out.colors);
                out.repaint(&format!(
                    "Every {:?}, Ctrl-C ends.\n{shown}",
                    watch.interval
                ))?;
            }
            Ok(status) => {
                out.text(&show::status(status, out.colors))?;
                out.bytes(b"\n")?;
            }
            Err(text) if in_place => out.repaint(&format!("error: {text}\ntrying again\n"))?,
            Err(text) => complain(text),
        }
        outputs += 1;
        if watch.count.is_some_and(|count| outputs >= count) {
            return Ok(());
        }
        out.pause(watch.interval)?;
        seen = look();
    }
}
