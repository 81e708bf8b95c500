//! How the coordinator that leads, and the keeping of its state, are shown.

use std::fmt::Write;

use admin::{Checkpoint, GetClusterStatusResponse, Leader, StateKind};
use serde_json::{Value, json};

use super::notation::escape;
use super::show::duration;

/// Lines for people; nothing where there is only one coordinator, and all is well.
pub fn lines(text: &mut String, leader: Option<&Leader>) {
    let Some(leader) = leader else {
        return;
    };
    // Writing to a string does not fail.
    if !leader.name.is_empty() {
        let name = escape(leader.name.as_bytes());
        let _ = writeln!(text, "Coordinator: {name}, term {}", leader.term);
    }
    if !leader.refusal.is_empty() {
        let _ = writeln!(text, "THIS COORDINATOR DOES NOT LEAD: {}", leader.refusal);
    }
    if let Some(wait) = &leader.state_wait {
        let _ = writeln!(
            text,
            "NOTHING CAN BE NOTED for {}, and {} answers and orders wait; what is shown here may not be noted: {}",
            duration(wait.waited_ms.saturating_mul(1_000_000)),
            wait.held,
            wait.why
        );
    }
    if let Some(checkpoint) = &leader.checkpoint {
        checkpoint_lines(text, checkpoint);
    }
}

fn checkpoint_lines(text: &mut String, checkpoint: &Checkpoint) {
    let what = match (checkpoint.is_current, checkpoint.number) {
        (true, _) => "current",
        (false, 0) => "none yet: volumes alone would not bring this store back",
        (false, _) => "BEHIND: volumes alone would not bring everything back",
    };
    let _ = writeln!(
        text,
        "Checkpoint in volumes: {what}; {} bytes, made {} ago",
        checkpoint.bytes,
        duration(checkpoint.age_ms.saturating_mul(1_000_000))
    );
    for keeper in &checkpoint.keepers {
        if !keeper.failure.is_empty() {
            let server = base::ids::ServerId(keeper.server_id);
            let _ = writeln!(text, "  server {server} keeps none: {}", keeper.failure);
        }
    }
}

pub fn state_kind(status: &GetClusterStatusResponse) -> &'static str {
    match status.state_kind() {
        StateKind::Memory => "MEMORY",
        StateKind::File => "FILE",
        StateKind::Kubernetes => "KUBERNETES",
        StateKind::Unspecified => "UNKNOWN",
    }
}

pub fn leader_json(leader: Option<&Leader>) -> Value {
    let Some(leader) = leader else {
        return Value::Null;
    };
    let wait = leader.state_wait.as_ref().map(|wait| {
        json!({
            "waitedMs": wait.waited_ms,
            "why": wait.why,
            "held": wait.held,
        })
    });
    let checkpoint = leader.checkpoint.as_ref().map(|checkpoint| {
        let keepers = checkpoint.keepers.iter().map(|keeper| {
            json!({
                "serverId": base::ids::ServerId(keeper.server_id).to_string(),
                "number": keeper.number,
                "isCurrent": keeper.is_current,
                "failure": keeper.failure,
            })
        });
        json!({
            "term": checkpoint.term,
            "number": checkpoint.number,
            "bytes": checkpoint.bytes,
            "ageMs": checkpoint.age_ms,
            "membersWanted": checkpoint.members_wanted,
            "isCurrent": checkpoint.is_current,
            "keepers": keepers.collect::<Vec<Value>>(),
        })
    });
    json!({
        "name": leader.name,
        "term": leader.term,
        "sequence": leader.sequence,
        "refusal": leader.refusal,
        "stateWait": wait,
        "checkpoint": checkpoint,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leads_is_shown_and_what_keeps_it_from_that() {
        let mut text = String::new();
        let mut leader = Leader::default();
        lines(&mut text, None);
        lines(&mut text, Some(&leader));
        assert_eq!(text, "");
        leader.name = "box-coordinator-x".to_owned();
        leader.term = 3;
        lines(&mut text, Some(&leader));
        assert_eq!(text, "Coordinator: box-coordinator-x, term 3\n");
        leader.refusal = "StateRolledBack: put it back".to_owned();
        leader.state_wait = Some(admin::StateWait {
            waited_ms: 65_000,
            why: "cannot write the root".to_owned(),
            held: 4,
        });
        lines(&mut text, Some(&leader));
        for part in [
            "DOES NOT LEAD: StateRolledBack",
            "for 1 min 5 s, and 4 answers",
            "cannot write the root",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert_eq!(leader_json(Some(&leader))["stateWait"]["held"], 4);
        assert_eq!(leader_json(None), Value::Null);
    }
}
