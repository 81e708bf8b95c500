//! Scans: a table, page by page, while others change it. Every object that a page shows was read at some moment between its
//! request and its answer; every key that a whole scan does not show was absent at some moment of the scan.

use std::collections::BTreeSet;

use base::ids::TableId;
use wire::rpc::{EnumeratedObject, RejectRules};

use crate::oracles::checker::{Input, Operation, Output, Sight};
use crate::oracles::history::{History, Sighting};
use crate::oracles::values;

/// How far a scan has come.
#[derive(Clone, Debug)]
pub struct Scan {
    pub(super) table: TableId,
    pub(super) keys_only: bool,
    pub(super) began: u64,
    pub(super) page_began: u64,
    pub(super) pages: u32,
    /// Keys of the objects that were returned so far.
    pub(super) keys: BTreeSet<Vec<u8>>,
    /// Where and with what to go on.
    pub(super) hash: u64,
    pub(super) iterator: Vec<u8>,
    /// Whether it is one of those in the end, when nothing else happens.
    pub(super) is_last: bool,
}

impl Scan {
    pub fn new(now: u64, table: TableId, keys_only: bool, is_last: bool) -> Scan {
        Scan {
            table,
            keys_only,
            began: now,
            page_began: now,
            pages: 0,
            keys: BTreeSet::new(),
            hash: 0,
            iterator: Vec::new(),
            is_last,
        }
    }

    /// Takes the objects of a page in. Says what is wrong with them.
    pub(super) fn take_page(
        &mut self,
        now: u64,
        client: u32,
        objects: &[u8],
        history: &mut History,
    ) -> Result<u64, String> {
        let mut count = 0;
        for object in EnumeratedObject::decode_all(objects) {
            let object = object.map_err(|status| format!("a page of a scan: {status}"))?;
            let key = object.object.primary_key().to_vec();
            let name = key.escape_ascii().to_string();
            if object.table_id != self.table {
                return Err(format!(
                    "a scan of table {} gave {name} of table {}",
                    self.table, object.table_id
                ));
            }
            let mut sight = Sight {
                content: None,
                keys: values::keys(&object.object),
            };
            let value = object.object.value();
            if !self.keys_only {
                sight.content = values::content(value);
            }
            if sight.keys.is_none()
                || (sight.content.is_none() && !self.keys_only)
                || (self.keys_only && !value.is_empty())
            {
                return Err(format!("a scan gave an object that nobody wrote: {name}"));
            }
            let operation = Operation {
                client,
                input: Input::Read(RejectRules::default()),
                output: Output::Found(object.version, sight),
                call: self.page_began,
                end: now,
            };
            history.sightings.push(Sighting {
                table: self.table,
                key: key.clone(),
                operation,
            });
            if !self.keys.insert(key) && !history.may_repeat(self.table, self.began) {
                return Err(format!(
                    "a scan gave {name} twice, though no tablet of table {} was split or moved",
                    self.table
                ));
            }
            count += 1;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::checker::Content;
    use crate::oracles::values::value_bytes;
    use wire::keys::KeysAndValue;

    const TABLE: TableId = TableId(7);

    fn object(table: TableId, key: &[u8], value: &[u8]) -> Vec<u8> {
        let (mut content, mut object) = (Vec::new(), Vec::new());
        let whole = KeysAndValue::single(key, value).unwrap();
        whole.encode(&mut content);
        EnumeratedObject::encode(0, 5, table, &content, &mut object);
        object
    }

    fn scan(keys_only: bool) -> Scan {
        let mut scan = Scan::new(10, TABLE, keys_only, false);
        scan.page_began = 20;
        scan
    }

    #[test]
    fn what_a_page_shows_was_there_while_it_was_asked_for() {
        let mut history = History::default();
        let mut scan = scan(false);
        let page = [
            object(TABLE, b"a", &value_bytes(3, 8)),
            object(TABLE, b"b", &value_bytes(4, 30)),
        ];
        let count = scan.take_page(30, 1, &page.concat(), &mut history);
        assert_eq!(count, Ok(2));
        let seen: Vec<_> = history
            .sightings
            .iter()
            .map(|sighting| {
                let Operation {
                    output, call, end, ..
                } = sighting.operation;
                let Output::Found(5, sight) = output else {
                    panic!("{output:?}");
                };
                (sighting.key.as_slice(), sight.content, call, end)
            })
            .collect();
        let expected = [
            (&b"a"[..], Some(Content::Number(3)), 20, 30),
            (&b"b"[..], Some(Content::Text(4)), 20, 30),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn what_nobody_wrote_is_noticed() {
        let mut damaged = value_bytes(4, 30);
        damaged[20] ^= 1;
        for page in [
            object(TableId(8), b"a", &value_bytes(4, 30)),
            object(TABLE, b"a", &damaged),
            object(TABLE, b"a", b""),
            object(TABLE, b"a", &value_bytes(4, 30))[1..].to_vec(),
        ] {
            let found = scan(false).take_page(30, 1, &page, &mut History::default());
            assert!(found.is_err(), "{page:?}");
        }
        let value = object(TABLE, b"a", &value_bytes(4, 30));
        let found = scan(true).take_page(30, 1, &value, &mut History::default());
        assert!(found.is_err(), "only keys were asked for");
    }

    #[test]
    fn an_object_comes_twice_only_where_a_tablet_was_split_or_lost() {
        let page = object(TABLE, b"a", &value_bytes(4, 30));
        let twice = |history: &mut History| {
            let mut scan = scan(false);
            let first = scan.take_page(30, 1, &page, history);
            first.and_then(|_| scan.take_page(31, 1, &page, history))
        };
        let mut history = History::default();
        assert!(twice(&mut history).is_err());
        history.split(5, TableId(8));
        history.lose(9, "before the scan", Vec::new());
        assert!(twice(&mut history).is_err());
        history.split(5, TABLE);
        assert_eq!(twice(&mut history), Ok(1));
        let mut history = History::default();
        history.lose(11, "a", Vec::new());
        assert_eq!(twice(&mut history), Ok(1));
    }
}
