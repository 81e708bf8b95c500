//! Watches that boundaries which somebody has ordered are where whoever leads has them.

use crate::cluster::Cluster;

/// Looks at the coordinator that leads, if that is certain.
pub fn look(cluster: &mut Cluster) {
    if cluster.may_tell_older_time() || cluster.is_rebuilding {
        return cluster.boundaries.forget();
    }
    let mut boundaries = std::mem::take(&mut cluster.boundaries);
    let leading = cluster.leading().map(|(_, leader)| leader);
    let leading = leading.filter(|leader| match &cluster.api {
        Some(api) => api.is_led_by(leader),
        None => true,
    });
    let checked = leading.map_or(Ok(()), |leader| boundaries.check(leader));
    cluster.boundaries = boundaries;
    if let Err(text) = checked {
        cluster.fail(text);
    }
}
