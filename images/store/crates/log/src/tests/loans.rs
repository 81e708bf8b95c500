//! What is lent stays as it is until it is given back or called back.

use super::*;

/// One loan, with what must be there.
struct Lent {
    token: u64,
    bytes: Vec<u8>,
}

fn lend(store: &mut Store, key: &[u8]) -> Option<Lent> {
    let value = store.object(key)?.value;
    let (token, bytes) = (store.log.token_of(value)?, value.to_vec());
    store.log.lend(token);
    Some(Lent { token, bytes })
}

fn check(store: &Store, lent: &[Lent]) {
    for Lent { token, bytes } in lent {
        assert!(
            store.log.lent(*token, bytes.len()) == Some(bytes),
            "{token:x}"
        );
    }
}

/// As a driver does it: copies what is called back, and gives it back.
fn give_back_recalled(store: &mut Store, lent: &mut Vec<Lent>) -> bool {
    let Some(tokens) = store.log.take_recall() else {
        return false;
    };
    check(store, lent);
    let before = lent.len();
    lent.retain(|one| {
        let is_meant = tokens.contains(&one.token);
        if is_meant {
            store.log.returned(one.token);
        }
        !is_meant
    });
    assert!(lent.len() < before, "nothing of that was lent");
    true
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Lent bytes never change, and the log never stands still because of them.
    #[test]
    fn lent_bytes_stay_and_nobody_waits_for_them(
        steps in proptest::collection::vec((any_step(), 0usize..6), 1..400),
        durability in prop_oneof![Just(Durability::External), Just(Durability::Unreplicated)],
    ) {
        let mut store = Store::new(4096, 12, durability);
        let mut replicas = Replicas::default();
        let mut lent = Vec::new();
        for (step, what) in &steps {
            match step {
                Step::Write { key, bytes } => {
                    let key = format!("key-{}", key % 12).into_bytes();
                    let _ = store.write(&key, &vec![*key.last().unwrap(); usize::from(*bytes)]);
                    if *what < 3 {
                        lent.extend(lend(&mut store, &key));
                    }
                }
                Step::Remove { key } => {
                    let _ = store.remove(format!("key-{}", key % 12).as_bytes());
                }
                Step::Clean { budget } => {
                    store.clean(usize::from(*budget));
                }
                Step::Durable { part } if durability == Durability::External => {
                    replicas.follow(&mut store.log, *part);
                }
                Step::Durable { .. } => {}
            }
            if *what == 5 && !lent.is_empty() {
                let Lent { token, .. } = lent.swap_remove(lent.len() / 2);
                store.log.returned(token);
            }
            check(&store, &lent);
            give_back_recalled(&mut store, &mut lent);
            prop_assert_eq!(store.log.audit(&store.keeper), Ok(()));
        }
    }
}

#[test]
fn a_log_full_of_loans_calls_them_back() {
    let mut store = Store::new(4096, 12, Durability::Unreplicated);
    let mut lent = Vec::new();
    let mut recalls = 0;
    for _ in 0..500 {
        while store.write(b"key", &[1; 900]).is_err() {
            store.clean(1 << 20);
            recalls += u32::from(give_back_recalled(&mut store, &mut lent));
        }
        lent.extend(lend(&mut store, b"key"));
        check(&store, &lent);
    }
    assert!(recalls > 20, "{recalls}");
}

#[test]
fn what_a_log_has_forgotten_is_gone() {
    let mut store = Store::new(4096, 12, Durability::Unreplicated);
    store.write(b"key", &[1; 900]).unwrap();
    let Lent { token, bytes } = lend(&mut store, b"key").unwrap();
    store.log.reset(Origin {
        cluster_id: 7,
        server_id: ServerId::new(2, 0),
    });
    assert_eq!(store.log.lent(token, bytes.len()), None);
    store.log.returned(token);
}
