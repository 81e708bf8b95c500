use simulator::{Options, run};
use wire::bugs::Bug;

#[test]
fn survey() {
    std::panic::set_hook(Box::new(|_| {}));
    let bugs = [
        Bug::SkipServingLease,
        Bug::AppendAfterFencing,
        Bug::BelieveTornFrame,
        Bug::AcknowledgeBeforeLastReplica,
        Bug::IgnoreDigest,
        Bug::FreeReplicaEarly,
    ];
    for bug in bugs {
        let mut texts = std::collections::BTreeMap::<String, u64>::new();
        let mut first = None;
        let begun = std::time::Instant::now();
        let mut seeds = 0;
        for seed in 0..1500 {
            seeds = seed + 1;
            let options = Options {
                bug: Some(bug),
                ..Options::default()
            };
            let failure = std::panic::catch_unwind(|| run(seed, options).failure)
                .unwrap_or(Some("assertion".into()));
            if let Some(text) = failure {
                first.get_or_insert(seed);
                let mark = if text.contains("not linearizable") {
                    "not linearizable".to_owned()
                } else {
                    text.chars().take(60).collect()
                };
                *texts.entry(mark).or_default() += 1;
            }
            if texts.values().sum::<u64>() >= 8 {
                break;
            }
        }
        println!(
            "{bug:?}: of {seeds} first {first:?} {texts:?} {:.1} s",
            begun.elapsed().as_secs_f64()
        );
    }
}
