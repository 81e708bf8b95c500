//! What goes wrong with coordinators and with the API server that has their state. Each fault has streams of chance of its own.

use crate::cluster::Cluster;
use crate::cluster::hosts::coordinator_host;
use crate::event::Party;
use crate::scenario::{MILLI, SECOND};

/// Something happens to the coordinators, or to the API server.
pub fn strike(cluster: &mut Cluster) {
    cluster.excuse_coordinators();
    match cluster
        .streams
        .of("kinds of faults of coordinators")
        .between(0, 99)
    {
        0..20 => {
            let process = mostly_who_leads(cluster, "killed coordinators");
            cluster.crash_coordinator(process);
        }
        20..40 => dies_before_an_effect(cluster),
        40..58 => pause_coordinator(cluster),
        58..73 => cut_off_from_api(cluster),
        73..83 => second_leader(cluster),
        83..88 => address_wavers(cluster, 3 * SECOND),
        _ => api_trouble(cluster),
    }
}

/// Faults are of the leader, as a rule.
fn mostly_who_leads(cluster: &mut Cluster, of: &'static str) -> usize {
    let leading = cluster.leading().map(|(process, _)| process);
    let random = cluster.streams.of(of);
    let (is_usual, any) = (random.chance(800), random.below(cluster.coordinators.len()));
    leading.filter(|_| is_usual).unwrap_or(any)
}

/// It dies when it has done so many things more; sometimes the API server fails meanwhile.
fn dies_before_an_effect(cluster: &mut Cluster) {
    const PURPOSE: &str = "ends of coordinators within what they do";
    let process = mostly_who_leads(cluster, PURPOSE);
    let random = cluster.streams.of(PURPOSE);
    let (left, fails) = (random.between(0, 30), random.chance(500));
    let fails_for = random.between(MILLI, 5 * SECOND);
    cluster.coordinators[process].election.dies_after = Some(left);
    if fails {
        cluster.api_fails_for(500, fails_for);
    }
}

fn pause_coordinator(cluster: &mut Cluster) {
    const PURPOSE: &str = "pauses of coordinators";
    let host = coordinator_host(mostly_who_leads(cluster, PURPOSE));
    let random = cluster.streams.of(PURPOSE);
    let most = *random.pick(&[500 * MILLI, 4 * SECOND, 15 * SECOND]);
    let pause = random.between(MILLI, most);
    cluster.coverage.hit("coordinators paused");
    cluster.note_fault(host, "is paused for ns", pause);
    cluster.pause_until(host, cluster.now + pause);
}

fn cut_off_from_api(cluster: &mut Cluster) {
    const PURPOSE: &str = "coordinators cut off from the API server";
    let process = mostly_who_leads(cluster, PURPOSE);
    let random = cluster.streams.of(PURPOSE);
    let most = *random.pick(&[SECOND, 8 * SECOND, 30 * SECOND]);
    let after = random.between(MILLI, most);
    cluster.coverage.hit(PURPOSE);
    let host = coordinator_host(process);
    cluster.note_fault(host, "is cut off from the API server for ns", after);
    cluster.coordinators[process].election.cut_until = cluster.now + after;
}

/// Another one takes the lock. Who leads does not hear of it for a while, and some of the servers only later.
fn second_leader(cluster: &mut Cluster) {
    const PURPOSE: &str = "second leaders";
    let process = mostly_who_leads(cluster, PURPOSE);
    let count = cluster.coordinators.len();
    let random = cluster.streams.of(PURPOSE);
    let (after, other) = (random.between(MILLI, 10 * SECOND), random.below(count));
    let election = &mut cluster.coordinators[process].election;
    (election.cut_until, election.goes_on) = (cluster.now + after, true);
    if other != process {
        cluster.coverage.hit("locks taken while another held them");
        cluster.take_lock(other);
    }
    address_wavers(cluster, after);
}

/// For a while connections to the store's address end up anywhere; those that there are end.
fn address_wavers(cluster: &mut Cluster, most: u64) {
    cluster
        .coverage
        .hit("times at which the address led anywhere");
    let until = cluster.now
        + cluster
            .streams
            .of("wavering addresses")
            .between(MILLI, most);
    if let Some(api) = &mut cluster.api {
        api.wavers_until = until;
    }
    let sides = cluster.sides_of(|party| {
        matches!(
            party,
            Party::CoordinatorClient { .. } | Party::CoordinatorMember { .. }
        )
    });
    for (connection, _) in sides {
        if cluster.streams.of("wavering addresses").chance(700) {
            cluster.network.reset(cluster.now, connection);
        }
    }
}

/// Some requests fail for a while, or all of them.
fn api_trouble(cluster: &mut Cluster) {
    let (failures, most) = *cluster.streams.of("trouble of the API server").pick(&[
        (300, 10 * SECOND),
        (300, 10 * SECOND),
        (1000, 3 * SECOND),
        (1000, 20 * SECOND),
        (1000, 180 * SECOND),
    ]);
    let after = cluster
        .streams
        .of("trouble of the API server")
        .between(MILLI, most);
    cluster.api_fails_for(failures, after);
}
