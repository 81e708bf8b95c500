//! What a server tells of its ports: how they are, and how other servers are reached by them. The thread that serves HTTP asks drivers and the kernel,
//! which may take a while; each shard adds its own connections, and the coordinator hears of it with the next Pong.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use base::time::Time;
use daemon::mailbox::Mailbox;
use net::{FastPeer, Io, Target, Way};
use ports::Ports;
use server::links::{Links, Reached};
use tokio::time::MissedTickBehavior;
use wire::locator::parse_list;
use wire::member::{MAX_PORT_PINGS, MAX_PORTS, PortPing, PortReport};

use super::driver::Question;

/// Between two reports.
const INTERVAL: Duration = Duration::from_secs(2);

/// Tells shards how the ports are, again and again.
pub async fn keep_telling(ports: Arc<Ports>, shards: Vec<Mailbox<Question>>) {
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let ports = Arc::clone(&ports);
        let Ok(states) = tokio::task::spawn_blocking(move || ports.states()).await else {
            return tracing::error!("the ports cannot be asked any more; please report it");
        };
        for shard in &shards {
            // One that has too much to do is told the next time.
            shard.tell(Question::Ports(states.clone()));
        }
    }
}

/// How many backups the log goes to in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ways {
    pub by_port: u64,
    /// Though there are ports at both ends.
    pub over_tcp: u64,
}

impl Ways {
    pub fn count(links: &Links, io: &Io) -> Ways {
        let mut ways = Ways::default();
        for reached in links.reached() {
            match io.way(reached.connection) {
                Some(Way::Port { .. }) => ways.by_port += 1,
                Some(Way::Tcp) if missed(&reached, io).is_some() => ways.over_tcp += 1,
                Some(Way::Tcp) | None => {}
            }
        }
        ways
    }
}

/// Adds to each port of this shard whom it reaches, as the last pings said, and first of all who has a port and is not reached. Pings for the next time.
pub fn add_pings(now: Time, ports: &mut [PortReport], links: &Links, io: &mut Io) {
    for reached in links.reached() {
        if io.way(reached.connection) == Some(Way::Tcp)
            && let Some((port, peer)) = missed(&reached, io)
        {
            add(
                ports,
                port,
                ping(&reached, *peer.address.ip(), Duration::ZERO, Duration::ZERO),
            );
        }
    }
    let mut asked = [0; MAX_PORTS];
    for reached in links.reached() {
        let Some(Way::Port { port, peer, pinged }) = io.way(reached.connection) else {
            continue;
        };
        if let Some((round_trip, at)) = pinged {
            add(
                ports,
                port,
                ping(&reached, *peer.ip(), round_trip, now.since(at)),
            );
        }
        // Always the same ones: what was asked is told the next time.
        if let Some(asked) = asked.get_mut(port).filter(|asked| **asked < MAX_PORT_PINGS) {
            *asked += 1;
            io.ping(reached.connection);
        }
    }
}

fn add(ports: &mut [PortReport], port: usize, ping: PortPing) {
    let pings = ports.get_mut(port).map(|port| &mut port.pings);
    if let Some(pings) = pings.filter(|pings| pings.len() < MAX_PORT_PINGS) {
        pings.push(ping);
    }
}

fn ping(reached: &Reached<'_>, ip: Ipv4Addr, round_trip: Duration, age: Duration) -> PortPing {
    PortPing {
        server_id: reached.backup.0,
        ip: ip.to_string(),
        round_trip_ns: round_trip.as_nanos() as u64,
        age_ms: age.as_millis() as u64,
    }
}

/// The port here, and the peer's, by which a backup would be reached best.
fn missed(reached: &Reached<'_>, io: &Io) -> Option<(usize, FastPeer)> {
    let list = parse_list(reached.list).ok()?;
    let fast = list.iter().filter_map(|locator| match Target::of(locator) {
        Ok(Target::Fast(peer)) => Some((io.port_to(&peer)?, peer)),
        Ok(Target::Tcp(_)) | Err(_) => None,
    });
    fast.min_by_key(|(_, peer)| peer.kind)
}
