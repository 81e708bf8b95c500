use std::sync::Arc;

use base::time::Time;
use coordinator::state::objects::{Keeper, KeeperEffect, Settings, Tuning};
use coordinator::state::{Changes, Pair};
use test_api_server::{ApiServer, Fault, Method};

use super::*;

struct World {
    server: ApiServer,
    objects: Objects,
}

fn client_of(server: &ApiServer) -> Client {
    let mut config = kube::Config::new(format!("http://{}", server.address).parse().unwrap());
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

fn world() -> World {
    let server = ApiServer::start();
    let objects = Objects::new(client_of(&server), "default", "box");
    World { server, objects }
}

fn chunk(number: u64) -> ChunkId {
    ChunkId {
        term: 3,
        nonce: 0xabc,
        number,
    }
}

fn bytes(text: &str) -> Arc<[u8]> {
    text.as_bytes().into()
}

impl World {
    async fn ask(&self, request: Request) -> ObjectResponse {
        self.objects.carry_out(request).await
    }

    async fn root_version(&self) -> Version {
        match self.ask(Request::Get(Name::Root)).await {
            ObjectResponse::Found(version, _) => version,
            answer => panic!("{answer:?}"),
        }
    }
}

#[tokio::test]
async fn the_root_is_made_once_and_changed_only_at_its_version() {
    let world = world();
    assert_eq!(
        world.ask(Request::Get(Name::Root)).await,
        ObjectResponse::NotFound
    );
    let create = Request::Create(Name::Root, bytes("first\0\u{ff}"));
    let ObjectResponse::Done(version) = world.ask(create.clone()).await else {
        panic!("not made");
    };
    assert_eq!(world.ask(create).await, ObjectResponse::Conflict);
    let found = ObjectResponse::Found(version.clone(), "first\0\u{ff}".as_bytes().to_vec());
    assert_eq!(world.ask(Request::Get(Name::Root)).await, found);
    let replace = Request::Replace(version.clone(), bytes("second"));
    let ObjectResponse::Done(next) = world.ask(replace.clone()).await else {
        panic!("not replaced");
    };
    assert_ne!(version, next);
    assert_eq!(world.ask(replace).await, ObjectResponse::Conflict);
    let found = ObjectResponse::Found(next.clone(), b"second".to_vec());
    assert_eq!(world.ask(Request::Get(Name::Root)).await, found);
    assert_eq!(world.objects.root_version().await.unwrap(), Some(next.0));
    world.server.remove("configmaps/box-state-root");
    assert_eq!(world.objects.root_version().await.unwrap(), None);
    let replace = Request::Replace(version, bytes("third"));
    assert_eq!(world.ask(replace).await, ObjectResponse::NotFound);
}

/// Who was refused for want of a root, or because of what was in it, begins anew even if that is put right before anybody watches.
#[tokio::test]
async fn the_root_has_changed_also_if_that_was_before_somebody_looked() {
    let world = world();
    world.ask(Request::Create(Name::Root, bytes("first"))).await;
    let kept = world.server.copy();
    let changes = || world.objects.root_changes(Duration::from_millis(10));
    let waits = async || {
        let some_looks = tokio::time::timeout(Duration::from_millis(100), changes());
        some_looks.await.is_err()
    };
    assert!(waits().await);
    world.server.remove("configmaps/box-state-root");
    assert_eq!(
        world.ask(Request::Get(Name::Root)).await,
        ObjectResponse::NotFound
    );
    assert!(waits().await);
    world.server.put_back(kept.clone());
    changes().await;
    world.root_version().await;
    assert!(waits().await);
    world.server.put_back(kept);
    changes().await;
}

#[tokio::test]
async fn what_people_put_on_the_root_stays_and_they_are_told_what_it_is() {
    let world = world();
    world.ask(Request::Create(Name::Root, bytes("first"))).await;
    world.server.change("configmaps/box-state-root", |object| {
        object["metadata"]["labels"]["team"] = "storage".into();
    });
    let version = world.root_version().await;
    world.ask(Request::Replace(version, bytes("second"))).await;
    let metadata = world.server.object("configmaps/box-state-root").unwrap()["metadata"].clone();
    assert_eq!(metadata["labels"]["team"], "storage");
    assert_eq!(metadata["labels"]["rcbox.dev/store"], "box");
    assert_eq!(metadata["finalizers"][0], FINALIZER);
    let about = metadata["annotations"]["rcbox.dev/about"].as_str().unwrap();
    assert!(about.contains("what is in the store's volumes"), "{about}");
    assert!(metadata["ownerReferences"].is_null());
}

#[tokio::test]
async fn chunks_are_immutable_and_listed_page_by_page() {
    let world = world();
    world.ask(Request::Create(Name::Root, bytes("root"))).await;
    let other = Objects::new(client_of(&world.server), "default", "box-state");
    other
        .carry_out(Request::Create(Name::Chunk(chunk(1)), bytes("other's")))
        .await;
    for number in 1..=250 {
        let name = Name::Chunk(chunk(number));
        let answer = world.ask(Request::Create(name, bytes("piece"))).await;
        assert!(matches!(answer, ObjectResponse::Done(_)), "{answer:?}");
    }
    let again = Request::Create(Name::Chunk(chunk(7)), bytes("other"));
    assert_eq!(world.ask(again).await, ObjectResponse::Conflict);
    let path = format!("configmaps/box-state-{}", chunk(7));
    assert_eq!(world.server.object(&path).unwrap()["immutable"], true);
    for fresh in [true, false] {
        let ObjectResponse::Listed(mut chunks) = world.ask(Request::List { fresh }).await else {
            panic!("not listed");
        };
        chunks.sort();
        assert_eq!(chunks, (1..=250).map(chunk).collect::<Vec<_>>());
    }
    assert!(matches!(
        world.ask(Request::Delete(chunk(7))).await,
        ObjectResponse::Done(_)
    ));
    assert_eq!(
        world.ask(Request::Delete(chunk(7))).await,
        ObjectResponse::NotFound
    );
    let gone = Request::Get(Name::Chunk(chunk(7)));
    assert_eq!(world.ask(gone).await, ObjectResponse::NotFound);
}

#[tokio::test]
async fn whatever_goes_wrong_is_said_and_nothing_is_sent_again_on_the_quiet() {
    let world = world();
    world.ask(Request::Create(Name::Root, bytes("first"))).await;
    let version = world.root_version().await;
    for code in [410, 429, 500, 503, 504] {
        let asked = world.server.asked().len();
        world
            .server
            .trap(Method::PATCH, "root", Fault::Instead(code));
        let replace = Request::Replace(version.clone(), bytes("second"));
        let ObjectResponse::Failed(why) = world.ask(replace).await else {
            panic!("{code} is no answer");
        };
        assert!(why.contains(&code.to_string()), "{why}");
        assert_eq!(world.server.asked().len(), asked + 1, "{code}");
    }
    world
        .server
        .trap(Method::GET, "configmaps", Fault::Instead(410));
    let answer = world.ask(Request::List { fresh: true }).await;
    assert!(
        matches!(&answer, ObjectResponse::Failed(why) if why.contains("410")),
        "{answer:?}"
    );
    // One that failed, and took effect.
    world
        .server
        .trap(Method::PATCH, "root", Fault::Afterwards(504));
    let replace = Request::Replace(version.clone(), bytes("second"));
    assert!(matches!(
        world.ask(replace).await,
        ObjectResponse::Failed(_)
    ));
    assert_ne!(world.root_version().await, version);
    assert!(world.server.no_traps_left());
}

#[tokio::test]
async fn an_api_server_that_is_gone_is_said_with_the_reason() {
    let server = ApiServer::start();
    let objects = Objects::new(client_of(&server), "default", "box");
    drop(server);
    let answer = objects.carry_out(Request::Get(Name::Root)).await;
    let ObjectResponse::Failed(why) = answer else {
        panic!("{answer:?}");
    };
    assert!(why.contains("refused"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn silence_ends_after_some_seconds() {
    let world = world();
    world
        .server
        .trap(Method::POST, "configmaps", Fault::SilentAfterwards);
    let create = Request::Create(Name::Root, bytes("first"));
    let answer = world.ask(create.clone()).await;
    let ObjectResponse::Failed(why) = answer else {
        panic!("{answer:?}");
    };
    assert!(why.contains("within 5 s"), "{why}");
}

fn settings(nonce: u64, name: &str) -> Settings {
    Settings {
        nonce,
        leader: name.to_owned(),
        new_cluster_id: 77,
        awaits_seed: false,
        tuning: Tuning::default(),
    }
}

/// Lets a keeper run until it has said what `until` wants to hear.
async fn run(
    world: &World,
    keeper: &mut Keeper,
    until: impl Fn(&KeeperEffect) -> bool,
) -> KeeperEffect {
    loop {
        while let Some(effect) = keeper.take_effect() {
            if let KeeperEffect::Request(id, request) = effect {
                let answer = world.ask(request).await;
                keeper.answered(now(), id, answer);
            } else if until(&effect) {
                return effect;
            }
        }
        let wake = keeper.next_wake().since(now());
        tokio::time::sleep(wake.min(Duration::from_millis(50))).await;
        keeper.tick(now());
    }
}

fn now() -> Time {
    net::now()
}

fn table(number: u32) -> Pair {
    Pair {
        key: format!("table-{number:06}").into_bytes(),
        // As long as a table's record with a handful of tablets.
        value: vec![number as u8; 700],
    }
}

/// A state far beyond one object: kept, found again by the next leader, and each object below Kubernetes' limit.
#[tokio::test]
async fn ten_thousand_tables_are_kept_in_objects_that_are_small_enough() {
    let world = world();
    let mut keeper = Keeper::new(settings(1, "a"));
    keeper.start(now());
    run(&world, &mut keeper, |effect| {
        matches!(effect, KeeperEffect::Loaded { .. })
    })
    .await;
    let mut expected = Vec::new();
    for batch in 0..20_u32 {
        let puts: Vec<Pair> = (batch * 500..(batch + 1) * 500).map(table).collect();
        expected.extend(puts.iter().cloned());
        let deletes = Vec::new();
        let number = keeper.commit(now(), Changes { puts, deletes });
        if batch == 7 {
            // Everything may go wrong once.
            world
                .server
                .trap(Method::PATCH, "root", Fault::Afterwards(500));
            world
                .server
                .trap(Method::POST, "configmaps", Fault::Instead(503));
        }
        run(&world, &mut keeper, |effect| {
            *effect == KeeperEffect::Committed(number)
        })
        .await;
    }
    assert!(world.server.no_traps_left());
    let chunks = world.server.names("configmaps").len() - 1;
    assert!((14..=60).contains(&chunks), "{chunks} chunks");
    let longest = world.server.longest_object_bytes();
    assert!(longest < 700 << 10, "{longest} bytes");

    let mut next = Keeper::new(settings(2, "b"));
    next.start(now());
    let loaded = run(&world, &mut next, |effect| {
        matches!(effect, KeeperEffect::Loaded { .. })
    })
    .await;
    let KeeperEffect::Loaded {
        cluster_id,
        mut pairs,
    } = loaded
    else {
        unreachable!();
    };
    assert_eq!(cluster_id, 77);
    pairs.sort();
    assert!(pairs == expected, "{} pairs", pairs.len());
    // The former leader notices with its next commit.
    let deletes = vec![b"table-000001".to_vec()];
    let puts = Vec::new();
    keeper.commit(now(), Changes { puts, deletes });
    let ended = run(&world, &mut keeper, |effect| {
        matches!(effect, KeeperEffect::Ended(..))
    })
    .await;
    let KeeperEffect::Ended(_, text) = ended else {
        unreachable!();
    };
    assert!(text.contains("\"b\" leads now"), "{text}");
}
