//! Time traces of servers, as the admin API gives them out.

use std::collections::BTreeMap;

use coordinator::orders::{Asked, ControlOrder};
use trace::{Format, Trace, Wanted};
use wire::rpc::{ServerControlAllResponse, ServerControlResponse, control_op};

use super::controls::Controlled;

/// Events of each shard where nobody says how many.
const LAST: u32 = 200;
/// Events in one answer: less than gRPC's 4 MiB.
const MAX_EVENTS: usize = 20_000;

pub fn order(request: admin::GetTimeTraceRequest) -> ControlOrder {
    let last = match request.last {
        0 => LAST,
        last => last,
    };
    let wanted = Wanted {
        last: (last as usize).min(MAX_EVENTS),
        format: Format::Raw,
    };
    ControlOrder {
        member: request.member,
        shard_index: request.shard_index,
        op: control_op::GET_TIME_TRACE,
        input: wanted.to_input(),
    }
}

pub fn response(controlled: Controlled) -> admin::GetTimeTraceResponse {
    let Controlled { asked, response } = controlled;
    let answers = answers(&response);
    let of_each = MAX_EVENTS / asked.len().max(1);
    let count = asked.len() as u32;
    let shards = asked.into_iter().filter_map(|shard| {
        let (is_ok, output) = answers.get(&shard.server_id.0)?;
        Some(shard_trace(shard, *is_ok, output, of_each))
    });
    admin::GetTimeTraceResponse {
        shards: shards.collect(),
        asked: count,
    }
}

/// What each server said.
fn answers(response: &[u8]) -> BTreeMap<u64, (bool, &[u8])> {
    let mut answers = BTreeMap::new();
    let Ok(all) = ServerControlAllResponse::decode(response) else {
        return answers;
    };
    let mut rest = all.responses;
    while let Ok(one) = ServerControlResponse::decode(rest) {
        let is_ok = one.status == wire::status::Status::Ok;
        answers.insert(one.server_id.0, (is_ok, one.output));
        let bytes = ServerControlResponse::FIXED_BYTES + one.output.len();
        let Some(next) = rest.get(bytes..).filter(|next| !next.is_empty()) else {
            break;
        };
        rest = next;
    }
    answers
}

fn shard_trace(shard: Asked, is_ok: bool, output: &[u8], last: usize) -> admin::ShardTrace {
    let mut found = admin::ShardTrace {
        member: shard.member,
        shard_index: shard.shard_index,
        server_id: shard.server_id.0,
        ..admin::ShardTrace::default()
    };
    let trace = match Trace::from_bytes(output) {
        Ok(trace) if is_ok => trace,
        Ok(_) => {
            "the server refused".clone_into(&mut found.refusal);
            return found;
        }
        Err(error) => {
            found.refusal = error.to_string();
            return found;
        }
    };
    found.boot_id = trace.clock.boot_id.to_vec();
    let first = trace.events.len().saturating_sub(last);
    let event = |record: &trace::Record| admin::TraceEvent {
        time_ns: trace.clock.boottime_ns(record.ticks),
        name: record.name().to_owned(),
        description: record.words(),
        place: record.place.into(),
        argument: record.arg,
    };
    found.events = trace.events[first..].iter().map(event).collect();
    found
}

#[cfg(test)]
mod tests {
    use base::ids::ServerId;
    use wire::status::Status;

    use super::*;

    fn asked(index: u32) -> Asked {
        Asked {
            server_id: ServerId::new(index, 0),
            member: format!("m{index}"),
            shard_index: 0,
        }
    }

    #[test]
    fn each_server_says_what_it_has() {
        let recorder = trace::start("admin");
        (0..5).for_each(|number| trace::record(trace::Event::Appended, number));
        let mut responses = Vec::new();
        for (index, output) in [
            (1, recorder.read(3).to_bytes()),
            (2, b"no time trace".to_vec()),
        ] {
            ServerControlResponse {
                status: Status::Ok,
                server_id: ServerId::new(index, 0),
                output: &output,
            }
            .encode(&mut responses);
        }
        let mut response = Vec::new();
        ServerControlAllResponse {
            status: Status::Ok,
            server_count: 3,
            response_count: 2,
            responses: &responses,
        }
        .encode(&mut response);
        let asked = vec![asked(1), asked(2), asked(3)];
        let shown = super::response(Controlled { asked, response });
        assert_eq!(shown.asked, 3);
        let [one, two] = &shown.shards[..] else {
            panic!("{shown:?}")
        };
        assert_eq!((one.member.as_str(), one.refusal.as_str()), ("m1", ""));
        let arguments: Vec<_> = one.events.iter().map(|event| event.argument).collect();
        assert_eq!(arguments, [2, 3, 4]);
        assert_eq!(one.events[0].name, "Appended");
        assert!(one.events[0].time_ns <= one.events[2].time_ns);
        assert!(
            two.events.is_empty() && two.refusal.contains("--timeTrace"),
            "{two:?}"
        );
    }
}
