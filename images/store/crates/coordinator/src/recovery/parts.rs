//! Cutting what a dead server owned into parts for those who bring it back.

use std::cmp::Reverse;

use wire::member::TabletRange;
use wire::peer::MAX_FILTER_TABLETS;

use crate::directory::tables::Tables;

fn width(tablet: &TabletRange) -> u128 {
    u128::from(tablet.end_key_hash - tablet.start_key_hash) + 1
}

/// Cuts tablets that nobody owns into so many `pieces` each, and deals them out to `count` parts with about as much key space each; what is in
/// a part is in order. Says by how many there are more tablets now.
pub fn cut_into_parts(
    tables: &mut Tables,
    tablets: &[TabletRange],
    pieces: usize,
    count: usize,
) -> (Vec<Vec<TabletRange>>, u64) {
    let mut all: Vec<TabletRange> = if pieces > 1 {
        let cut = tablets
            .iter()
            .flat_map(|tablet| tables.cut_orphan(tablet, pieces));
        cut.collect()
    } else {
        tablets.to_vec()
    };
    let cuts = all.len().saturating_sub(tablets.len());
    // The widest first, each to the part that has the least.
    all.sort_by_key(|tablet| (Reverse(width(tablet)), *tablet));
    let mut parts = vec![(0, Vec::new()); count.min(all.len())];
    for tablet in all {
        if let Some((sum, part)) = parts.iter_mut().min_by_key(|(sum, _)| *sum) {
            *sum += width(&tablet);
            part.push(tablet);
        }
    }
    let mut orders = Vec::new();
    for (_, mut part) in parts {
        part.sort_unstable();
        orders.extend(part.chunks(MAX_FILTER_TABLETS).map(<[TabletRange]>::to_vec));
    }
    (orders, cuts as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use base::ids::ServerId;

    fn orphans(span: u32, limits: Limits) -> (Tables, Vec<TabletRange>) {
        let mut tables = Tables::new(0, limits);
        tables.create(1, b"a", span, &[&[1]]).unwrap();
        tables.orphan(1, ServerId::new(1, 0));
        let ranges = tables
            .tablets()
            .map(|(table, tablet)| table.range(tablet))
            .collect();
        (tables, ranges)
    }

    fn total(parts: &[Vec<TabletRange>]) -> u128 {
        parts.iter().flatten().map(width).sum()
    }

    #[test]
    fn a_single_tablet_is_cut_for_all() {
        let (mut tables, tablets) = orphans(1, Limits::default());
        let (parts, cuts) = cut_into_parts(&mut tables, &tablets, 3, 3);
        assert_eq!((parts.len(), cuts), (3, 2));
        assert_eq!(total(&parts), 1 << 64);
        let known: Vec<_> = tables
            .tablets()
            .map(|(table, tablet)| table.range(tablet))
            .collect();
        assert_eq!(parts.concat(), known);
        assert!(
            tables
                .tablets()
                .all(|(_, tablet)| tablet.sources.len() == 1)
        );
    }

    #[test]
    fn many_tablets_are_dealt_out_whole() {
        let (mut tables, tablets) = orphans(10, Limits::default());
        let (parts, cuts) = cut_into_parts(&mut tables, &tablets, 1, 4);
        assert_eq!(cuts, 0);
        let mut sizes: Vec<_> = parts.iter().map(Vec::len).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [2, 2, 3, 3]);
        assert_eq!(tables.tablets().count(), 10);
    }

    #[test]
    fn where_a_limit_stands_against_it_parts_are_fewer() {
        let limits = Limits {
            max_tablets: 4,
            ..Limits::default()
        };
        let (mut tables, tablets) = orphans(3, limits);
        let (parts, cuts) = cut_into_parts(&mut tables, &tablets, 3, 9);
        assert_eq!((parts.len(), cuts), (4, 1));
        assert_eq!(total(&parts), 1 << 64);
        assert_eq!(tables.tablets().count(), 4);
    }
}
