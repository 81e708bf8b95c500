//! What recoveries cannot find, as it is shown to people.

use std::collections::BTreeMap;

use base::ids::ServerId;

use crate::status::MissingLog;

/// Segments that the status lists.
const MAX_LISTED: usize = 256;

/// What of a log no backup that answers has, and what is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    pub segments: Vec<u64>,
    /// No head: which other segments belong to the log is not known either.
    pub lacks_head: bool,
    /// Segments of which something can be read: id, and how many bytes.
    pub left: BTreeMap<u64, u32>,
    /// For people.
    pub text: String,
}

/// By the log that something is missing of.
pub(crate) type MissingLogs = BTreeMap<ServerId, Missing>;

/// Says shortly what is missing and what is left: whoever repeats it has seen both.
pub(super) fn token(logs: &MissingLogs) -> String {
    let mut crc = 0;
    let mut add = |number: u64| crc = crc32c::crc32c_append(crc, &number.to_le_bytes());
    for (log, missing) in logs {
        add(log.0);
        add(u64::from(missing.lacks_head));
        add(missing.segments.len() as u64);
        missing.segments.iter().for_each(|id| add(*id));
        add(missing.left.len() as u64);
        for (segment_id, bytes) in &missing.left {
            add(*segment_id);
            add(u64::from(*bytes));
        }
    }
    format!("{crc:08x}")
}

/// For the status: the logs, and their token, which is empty if nothing is missing.
pub(super) fn shown(logs: &MissingLogs) -> (Vec<MissingLog>, String) {
    let view = |(log, missing): (&ServerId, &Missing)| MissingLog {
        server_id: log.0,
        segments: missing.segments.iter().copied().take(MAX_LISTED).collect(),
        segment_count: missing.segments.len() as u64,
        lacks_head: missing.lacks_head,
        segments_left: missing.left.len() as u64,
        bytes_left: missing.left.values().map(|bytes| u64::from(*bytes)).sum(),
        text: missing.text.clone(),
    };
    let token = if logs.is_empty() {
        String::new()
    } else {
        token(logs)
    };
    (logs.iter().map(view).collect(), token)
}

pub(super) fn describe(logs: &MissingLogs) -> String {
    let parts = logs.iter().map(|(log, missing)| {
        let mut what = Vec::new();
        if missing.lacks_head {
            what.push("its end (the head segment), and whatever only the head named".to_owned());
        }
        if !missing.segments.is_empty() {
            what.push(format!("{} segments", missing.segments.len()));
        }
        let bytes = missing.left.values().map(|bytes| u64::from(*bytes));
        format!(
            "of the log of server {log}: {}; {} segments ({} MiB) were left",
            what.join(" and "),
            missing.left.len(),
            bytes.sum::<u64>().div_ceil(1 << 20)
        )
    });
    parts.collect::<Vec<_>>().join("; ")
}
