//! Datagrams on their way.

use std::net::SocketAddrV4;

use crate::cluster::Cluster;
use crate::event::Event;
use crate::net::datagrams::place;

impl Cluster {
    /// A datagram leaves a port.
    pub fn carry(&mut self, from: SocketAddrV4, to: SocketAddrV4, datagram: Vec<u8>) {
        let Some(datagrams) = &mut self.datagrams else {
            return;
        };
        let fates = datagrams.fates(datagram);
        match fates.len() {
            0 => self.coverage.hit("datagrams lost"),
            1 => {}
            _ => self.coverage.hit("datagrams repeated"),
        }
        for (delay, bytes, is_changed) in fates {
            if is_changed {
                self.coverage.hit("datagrams changed on the way");
            }
            self.schedule_in(delay, Event::Datagram { from, to, bytes });
        }
    }

    /// Whether a datagram that is there now is heard: not through a partition, nor where datagrams get nowhere.
    pub fn is_heard(&self, from: SocketAddrV4, to: SocketAddrV4) -> bool {
        let ((kind, from), (_, to)) = (place(from), place(to));
        let datagrams = self.datagrams.as_ref();
        !self.network.is_cut(from, to)
            && datagrams.is_some_and(|it| !it.is_dead(self.now, kind, from, to))
    }
}
