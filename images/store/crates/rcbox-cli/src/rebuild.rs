//! How it is shown that a store was made again from its volumes.

use std::fmt::Write;

use admin::GetClusterStatusResponse;
use serde_json::{Value, json};

use super::notation::escape;
use super::show::duration;

/// A line for people, if it ever was.
pub fn line(text: &mut String, status: &GetClusterStatusResponse) {
    let Some(rebuilt) = &status.rebuilt else {
        return;
    };
    let listed = |names: &[String]| escape(names.join(", ").as_bytes());
    let without = match rebuilt.without.as_slice() {
        [] => String::new(),
        names => format!(", without the volumes of {}", listed(names)),
    };
    let given_up = match rebuilt.given_up.as_slice() {
        [] => String::new(),
        names => format!(
            "; those of {} were given up, so what was noted after that checkpoint may be lost",
            listed(names)
        ),
    };
    let ago = status.cluster_time_ns;
    let ago = duration(ago.saturating_sub(rebuilt.cluster_time_ns));
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "Made again from volumes {ago} ago, from checkpoint {} of term {}{without}{given_up}",
        rebuilt.checkpoint_number, rebuilt.checkpoint_term
    );
}

pub fn json(status: &GetClusterStatusResponse) -> Value {
    let rebuilt = status.rebuilt.as_ref().map(|rebuilt| {
        json!({
            "clusterTimeNs": rebuilt.cluster_time_ns,
            "checkpointTerm": rebuilt.checkpoint_term,
            "checkpointNumber": rebuilt.checkpoint_number,
            "without": rebuilt.without,
            "givenUp": rebuilt.given_up,
        })
    });
    rebuilt.unwrap_or(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_from_what_the_store_was_made_and_what_may_be_lost() {
        let mut status = GetClusterStatusResponse::default();
        let shown = |status: &GetClusterStatusResponse| {
            let mut text = String::new();
            line(&mut text, status);
            text
        };
        assert_eq!(
            (shown(&status), json(&status)),
            (String::new(), Value::Null)
        );
        status.cluster_time_ns = 9_000_000_000;
        status.rebuilt = Some(admin::Rebuilt {
            cluster_time_ns: 4_000_000_000,
            checkpoint_term: 3,
            checkpoint_number: 12,
            without: vec!["m1".to_owned(), "m2".to_owned()],
            given_up: Vec::new(),
        });
        assert_eq!(
            shown(&status),
            "Made again from volumes 5 s ago, from checkpoint 12 of term 3, without the volumes of m1, m2\n"
        );
        if let Some(rebuilt) = &mut status.rebuilt {
            rebuilt.given_up = vec!["m2".to_owned()];
        }
        let text = shown(&status);
        assert!(
            text.contains("; those of m2 were given up, so what"),
            "{text}"
        );
        assert_eq!(json(&status)["givenUp"], json!(["m2"]));
    }
}
