//! Commands on tables and objects.

use std::io::{Read, Write};

use client::{Cluster, RejectRules, TableId};
use serde_json::json;

use super::{Command, Key, explain};

/// Standard output.
pub struct Out {
    pub json: bool,
}

impl Out {
    pub fn text(&self, text: &str) -> Result<(), String> {
        self.bytes(text.as_bytes())?;
        if text.ends_with('\n') {
            Ok(())
        } else {
            self.bytes(b"\n")
        }
    }

    fn bytes(&self, bytes: &[u8]) -> Result<(), String> {
        let mut out = std::io::stdout().lock();
        out.write_all(bytes)
            .and_then(|()| out.flush())
            .map_err(|error| format!("cannot write: {error}"))
    }

    fn version(&self, version: u64) -> Result<(), String> {
        self.text(&if self.json {
            json!({ "version": version }).to_string()
        } else {
            version.to_string()
        })
    }
}

pub(super) fn run(cluster: &mut Cluster, command: &Command, out: &Out) -> Result<(), String> {
    match command {
        Command::Get { key } => get(cluster, key, out),
        Command::Put {
            key,
            value,
            if_absent,
            if_version,
        } => {
            let rules = RejectRules {
                exists: *if_absent,
                given_version: if_version.unwrap_or(0),
                version_ne_given: if_version.is_some(),
                doesnt_exist: if_version.is_some(),
                ..RejectRules::default()
            };
            put(cluster, key, value.as_deref(), &rules, out)
        }
        Command::Rm { key } => {
            let (table, bytes) = find(cluster, key)?;
            let version = cluster
                .remove(table, &bytes)
                .map_err(|error| explain(&error, &key.table))?;
            if version == 0 {
                return Err(format!(
                    "there was no object {:?} in table {:?}",
                    key.key, key.table
                ));
            }
            out.version(version)
        }
        Command::CreateTable { table, span } => {
            let id = cluster
                .create_table(table, *span)
                .map_err(|error| explain(&error, table))?;
            out.text(&if out.json {
                json!({ "tableId": id.0 }).to_string()
            } else {
                id.to_string()
            })
        }
        Command::DropTable { table } => cluster
            .drop_table(table)
            .map_err(|error| explain(&error, table)),
        Command::Status | Command::Tables => Ok(()),
    }
}

fn get(cluster: &mut Cluster, key: &Key, out: &Out) -> Result<(), String> {
    let (table, bytes) = find(cluster, key)?;
    let object = cluster
        .read(table, &bytes)
        .map_err(|error| match error.is_absent() {
            true => format!("there is no object {:?} in table {:?}", key.key, key.table),
            false => explain(&error, &key.table),
        })?;
    if !out.json {
        return out.bytes(&object.value);
    }
    let value = match std::str::from_utf8(&object.value) {
        Ok(text) => json!({ "version": object.version, "value": text }),
        Err(_) => json!({ "version": object.version, "valueHex": to_hex(&object.value) }),
    };
    out.text(&value.to_string())
}

fn put(
    cluster: &mut Cluster,
    key: &Key,
    value: Option<&str>,
    rules: &RejectRules,
    out: &Out,
) -> Result<(), String> {
    let (table, bytes) = find(cluster, key)?;
    let value = match value {
        Some(value) => value.as_bytes().to_vec(),
        None => read_input()?,
    };
    let version = cluster
        .write_if(table, &bytes, &value, rules)
        .map_err(|error| explain(&error, &key.table))?;
    out.version(version)
}

/// Standard input, as long as it may be a value.
fn read_input() -> Result<Vec<u8>, String> {
    let limit = wire::rpc::MAX_VALUE_BYTES as u64;
    let mut value = Vec::new();
    let input = std::io::stdin().lock();
    input
        .take(limit + 1)
        .read_to_end(&mut value)
        .map_err(|error| format!("cannot read the value: {error}"))?;
    if value.len() as u64 > limit {
        return Err(format!(
            "the value on standard input is longer than {limit} bytes"
        ));
    }
    Ok(value)
}

fn find(cluster: &mut Cluster, key: &Key) -> Result<(TableId, Vec<u8>), String> {
    let bytes = if key.hex {
        from_hex(&key.key)?
    } else {
        key.key.as_bytes().to_vec()
    };
    let table = cluster
        .table_id(&key.table)
        .map_err(|error| explain(&error, &key.table))?;
    Ok((table, bytes))
}

fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let error = || format!("{text:?} is not a key in hexadecimal digits, two for each byte");
    if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) || !text.len().is_multiple_of(2) {
        return Err(error());
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| error()))
        .collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_keys() {
        assert_eq!(from_hex("00ffA0"), Ok(vec![0, 255, 160]));
        assert_eq!(to_hex(&[0, 255, 160]), "00ffa0");
        assert!(from_hex("0").is_err());
        assert!(from_hex("0g").is_err());
        assert!(from_hex("äö").is_err());
        assert!(from_hex("+1").is_err());
    }
}
