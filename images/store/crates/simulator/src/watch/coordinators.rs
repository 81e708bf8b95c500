//! Watches that no machine of a coordinator contradicts itself, or another.

use crate::cluster::Cluster;

/// Looks at all that lead.
pub fn look(cluster: &mut Cluster) {
    let audits = cluster.leaders().map(|(_, leader)| leader.audit());
    let first = audits.filter_map(Result::err).next();
    if let Some(text) = first {
        cluster.fail(format!("a coordinator contradicts itself: {text}"));
    }
}
