//! What a message of a shard may leave in the coordinator's memory: texts and lists are cut here, before anybody keeps them.
//!
//! The frame itself is bounded by [`wire::member::MAX_FRAME_BYTES`], and that once; what is kept is kept for every shard.

use wire::member::{MAX_PORT_PINGS, MAX_PORTS, PortReport, ToCoordinator, shard};

use crate::Coordinator;

/// Of a text for people. Our builds send no longer ones.
const MAX_TEXT_BYTES: usize = 1000;
/// Of an address or a name.
const MAX_NAME_BYTES: usize = 253;

impl Coordinator {
    /// Cuts what a shard said to what may be kept of it.
    pub(crate) fn bound_message(&self, index: u32, message: &mut ToCoordinator) {
        match &mut message.kind {
            Some(shard::Kind::Pong(pong)) => {
                if let Some(on_draining) = &mut pong.on_draining {
                    let limits = &self.store.config.limits;
                    let shards = limits.max_shards_per_member as usize;
                    let servers = limits.max_members.saturating_mul(shards);
                    cut_list(&mut on_draining.backups, servers);
                }
                pong.loads.retain(|load| self.is_owned(index, load));
                pong.loads.shrink_to_fit();
                bound_ports(&mut pong.ports);
            }
            Some(shard::Kind::BackupReport(report)) => {
                cut(&mut report.retired, MAX_TEXT_BYTES);
                cut(&mut report.stalled, MAX_TEXT_BYTES);
            }
            Some(shard::Kind::LogInventory(inventory)) => {
                for replica in &mut inventory.replicas {
                    cut(&mut replica.damage, MAX_TEXT_BYTES);
                }
            }
            Some(shard::Kind::Recovered(recovered)) => cut(&mut recovered.failure, MAX_TEXT_BYTES),
            Some(shard::Kind::Migrated(migrated)) => cut(&mut migrated.failure, MAX_TEXT_BYTES),
            Some(shard::Kind::CheckpointKept(kept)) => cut(&mut kept.failure, MAX_TEXT_BYTES),
            _ => {}
        }
    }

    /// Whether the tablet of this load is one of ours, and this server's.
    fn is_owned(&self, index: u32, load: &wire::member::TabletLoad) -> bool {
        let Some(table) = self.store.tables.get(load.tablet.table_id) else {
            return false;
        };
        let tablet = table.tablet_of(load.tablet.start_key_hash);
        tablet.owner == index && table.range(tablet) == load.tablet
    }
}

fn bound_ports(ports: &mut Vec<PortReport>) {
    cut_list(ports, MAX_PORTS);
    for port in ports {
        let names = [
            &mut port.interface,
            &mut port.pci,
            &mut port.mac,
            &mut port.ip,
            &mut port.driver,
        ];
        for name in names {
            cut(name, MAX_NAME_BYTES);
        }
        cut_list(&mut port.pings, MAX_PORT_PINGS);
        for ping in &mut port.pings {
            cut(&mut ping.ip, MAX_NAME_BYTES);
        }
    }
}

/// The rest of the memory goes, too.
fn cut_list<T>(list: &mut Vec<T>, longest: usize) {
    if list.len() > longest {
        list.truncate(longest);
        list.shrink_to_fit();
    }
}

fn cut(text: &mut String, longest: usize) {
    if text.len() > longest {
        let mut ends = (0..=longest).rev();
        let end = ends.find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        text.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_two_letters() {
        for (text, cut_to) in [("abc", "abc"), ("abcd", "abc"), ("ab\u{20ac}", "ab")] {
            let mut kept = text.to_owned();
            cut(&mut kept, 3);
            assert_eq!(kept, cut_to);
        }
    }
}
