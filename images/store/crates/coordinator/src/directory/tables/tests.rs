//! Tables are cut, placed and limited.

use super::*;
use crate::resource::Resource;
use crate::table_limit::TableLimit;
use base::bugs::plant;

fn tables() -> Tables {
    Tables::new(0, Limits::default())
}

fn owners(table: &Table) -> Vec<u32> {
    table.tablets.iter().map(|tablet| tablet.owner).collect()
}

#[test]
fn a_range_is_cut_as_ramcloud_cuts_it() {
    let whole: Vec<_> = cut(0, u64::MAX, 1).collect();
    assert_eq!(whole, [(0, u64::MAX)]);
    let thirds: Vec<_> = cut(0, u64::MAX, 3).collect();
    let width = u64::MAX / 3 + 1;
    assert_eq!(
        thirds,
        [
            (0, width - 1),
            (width, 2 * width - 1),
            (2 * width, u64::MAX)
        ]
    );
    let narrow: Vec<_> = cut(7, 8, 5).collect();
    assert_eq!(narrow, [(7, 7), (8, 8)]);
}

#[test]
fn spans_go_round_the_members_and_on_after_the_last() {
    let mut tables = tables();
    let members: [&[u32]; 3] = [&[1], &[2], &[5]];
    assert_eq!(owners(tables.create(1, b"a", 2, &members).unwrap()), [1, 2]);
    assert_eq!(owners(tables.create(1, b"b", 0, &members).unwrap()), [5]);
    assert_eq!(
        owners(tables.create(1, b"c", 4, &members).unwrap()),
        [1, 2, 5, 1]
    );
    assert_eq!(owners(tables.create(1, b"d", 1, &[&[5]]).unwrap()), [5]);
    assert_eq!(
        owners(tables.create(1, b"e", 1, &members).unwrap()),
        [1],
        "wraps after the last member"
    );
    assert_eq!(tables.tablets_of(5), 3);
    assert_eq!(tables.tablets_of(9), 0);
}

#[test]
fn each_members_part_is_cut_over_its_shards() {
    let mut tables = tables();
    let table = tables.create(1, b"a", 2, &[&[1, 2], &[3]]).unwrap();
    let half = 1u64 << 63;
    let quarter = 1u64 << 62;
    let ranges: Vec<_> = table
        .tablets
        .iter()
        .map(|t| (t.start_key_hash, t.end_key_hash, t.owner))
        .collect();
    assert_eq!(
        ranges,
        [
            (0, quarter - 1, 1),
            (quarter, half - 1, 2),
            (half, u64::MAX, 3)
        ]
    );
}

/// The ids of two tables, of which the first is dropped before the second is created.
fn two_ids() -> [u64; 2] {
    let mut tables = Tables::new(7, Limits::default());
    let first = tables.create(1, b"a", 1, &[&[1]]).unwrap().id;
    assert_eq!(tables.drop_table(b"a").unwrap().id, first);
    assert!(tables.drop_table(b"a").is_none());
    assert_eq!(tables.tablets_of(1), 0);
    [first, tables.create(1, b"a", 1, &[&[1]]).unwrap().id]
}

#[test]
fn ids_count_up_under_the_tag_and_are_not_reused() {
    assert_eq!(two_ids(), [7 << 32 | 1, 7 << 32 | 2]);
    plant(Some(Bug::ReuseTableId));
    let [first, second] = two_ids();
    plant(None);
    assert_eq!(first, second, "the planted bug is not found");
}

#[test]
fn limits_refuse_with_a_reason() {
    let limits = Limits {
        max_tables: 2,
        max_tablets: 6,
        max_tablets_per_table: 4,
        max_span: 5,
        max_table_name_bytes: 3,
        ..Limits::default()
    };
    let mut tables = Tables::new(0, limits);
    let one: [&[u32]; 1] = [&[1]];
    let limit = |result: Result<&Table, CreateError>| match result {
        Err(CreateError::Limit(limit)) => limit,
        other => panic!("{other:?}"),
    };
    let of_long = limit(tables.create(1, b"long", 1, &one));
    assert_eq!(of_long, TableLimit::NameBytes { most: 3, asked: 4 });
    let of_wide = limit(tables.create(1, b"a", 6, &one));
    assert_eq!(of_wide, TableLimit::Span { most: 5, asked: 6 });
    let of_cut = limit(tables.create(1, b"a", 5, &one));
    assert!(matches!(
        of_cut,
        TableLimit::TabletsOfTable {
            span: 5,
            most: 4,
            ..
        }
    ));
    assert_eq!(
        tables.create(1, b"a", 1, &[]).unwrap_err(),
        CreateError::NoServers
    );
    tables.create(1, b"a", 4, &one).unwrap();
    let of_store = limit(tables.create(1, b"b", 3, &one));
    assert!(matches!(
        of_store,
        TableLimit::Tablets {
            span: 3,
            most: 6,
            ..
        }
    ));
    tables.create(1, b"b", 2, &one).unwrap();
    let of_count = limit(tables.create(1, b"c", 1, &one));
    assert_eq!(of_count, TableLimit::Tables { count: 2 });
}

#[test]
fn a_split_tablet_stays_with_its_owner() {
    let limits = Limits {
        max_tablets: 4,
        ..Limits::default()
    };
    let mut tables = Tables::new(0, limits);
    tables.create(1, b"a", 2, &[&[1], &[2]]).unwrap();
    let half = 1_u64 << 63;
    assert_eq!(
        tables.split(b"b", 5, Cut::Ordered),
        Err(SplitError::NoTable)
    );
    assert_eq!(tables.split(b"a", 0, Cut::Ordered), Ok(None));
    assert_eq!(tables.split(b"a", half, Cut::Ordered), Ok(None));
    for key_hash in [half + 5, u64::MAX] {
        let split = tables.split(b"a", key_hash, Cut::Ordered).unwrap().unwrap();
        assert_eq!((split.whole.end_key_hash, split.owner), (u64::MAX, 2));
        assert_eq!(split.second.start_key_hash, key_hash);
    }
    let tablets = tables.get(1).unwrap().tablets.iter();
    let ranges: Vec<_> = tablets
        .map(|t| (t.start_key_hash, t.end_key_hash, t.owner))
        .collect();
    let expected = [
        (0, half - 1, 1),
        (half, half + 4, 2),
        (half + 5, u64::MAX - 1, 2),
        (u64::MAX, u64::MAX, 2),
    ];
    assert_eq!(ranges, expected);
    assert_eq!(tables.tablets_of(2), 3);
    assert!(matches!(
        tables.split(b"a", 9, Cut::Ordered),
        Err(SplitError::Limit(TableLimit::Split {
            count: 4,
            most: 4,
            ..
        }))
    ));
    assert_eq!(tables.drop_table(b"a").unwrap().tablets.len(), 4);
    assert_eq!(tables.tablets_of(2), 0);
}

#[test]
fn reassignment_is_in_turn_and_keeps_the_counts() {
    let mut tables = tables();
    tables.create(1, b"a", 4, &[&[1], &[2]]).unwrap();
    tables.reassign(&BTreeSet::from([2]), &[1, 3]);
    let table = tables.get(1).unwrap();
    assert_eq!(owners(table), [1, 1, 1, 3]);
    assert_eq!([1, 2, 3].map(|owner| tables.tablets_of(owner)), [3, 0, 1]);
}

#[test]
fn an_audit_finds_what_was_miscounted_or_left_out() {
    let sound = || {
        let mut tables = tables();
        tables.create(1, b"a", 2, &[&[1], &[2]]).unwrap();
        assert_eq!(tables.audit(), Ok(()));
        tables
    };
    let id = sound().id_of(b"a").unwrap();
    let damages: [fn(&mut Tables, u64); 4] = [
        |tables, _| tables.tablet_count += 1,
        |tables, id| tables.owned.add(2, (id, 7)),
        |tables, id| tables.by_id.get_mut(&id).unwrap().tablets[0].end_key_hash -= 1,
        |tables, id| tables.by_id.get_mut(&id).unwrap().tablets[1].owner = NOBODY,
    ];
    for damage in damages {
        let mut tables = sound();
        damage(&mut tables, id);
        assert!(tables.audit().is_err(), "{tables:?}");
    }
}
