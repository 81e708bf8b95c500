//! Histories that are known to be good, and others that are known not to be.

use super::*;
use wire::rpc::RejectRules;
use wire::status::Status;

const NONE: RejectRules = RejectRules {
    given_version: 0,
    doesnt_exist: false,
    exists: false,
    version_le_given: false,
    version_ne_given: false,
};
const ABSENT: Output = Output::Refused(Status::ObjectDoesntExist, 0);

fn text(number: u64) -> Value {
    Value {
        content: Content::Text(number),
        keys: Keys::One,
    }
}
fn found(version: u64, number: u64) -> Output {
    let sight = Sight {
        content: Some(Content::Text(number)),
        keys: None,
    };
    Output::Found(version, sight)
}
fn op(call: u64, end: u64, input: Input, output: Output) -> Operation {
    Operation {
        client: 1,
        input,
        output,
        call,
        end,
    }
}
fn read(call: u64, end: u64, output: Output) -> Operation {
    op(call, end, Input::Read(NONE), output)
}
fn write(call: u64, end: u64, value: u64, version: u64) -> Operation {
    op(
        call,
        end,
        Input::Write(text(value), NONE),
        Output::Done(version),
    )
}
fn remove(call: u64, end: u64, version: u64) -> Operation {
    op(call, end, Input::Remove(NONE), Output::Done(version))
}
fn lost(call: u64, value: u64) -> Operation {
    op(
        call,
        u64::MAX,
        Input::Write(text(value), NONE),
        Output::Unknown,
    )
}
fn crash(at: u64) -> Operation {
    op(at, at, Input::Loss, Output::Unknown)
}
fn rebuild(at: u64, least_version: u64) -> Operation {
    op(at, at, Input::Rebuild(least_version), Output::Unknown)
}

fn good(history: &[Operation]) {
    assert_eq!(check(history, 100_000), Verdict::Linearizable);
}
fn bad(history: &[Operation]) {
    let verdict = check(history, 100_000);
    assert!(matches!(verdict, Verdict::Violation(_)), "{verdict:?}");
}

#[test]
fn nothing_and_one_after_the_other() {
    good(&[]);
    good(&[
        read(0, 1, ABSENT),
        write(2, 3, 7, 1),
        read(4, 5, found(1, 7)),
        write(6, 7, 8, 2),
        remove(8, 9, 2),
        remove(10, 11, 0),
        read(12, 13, ABSENT),
        write(14, 15, 9, 3),
    ]);
}

#[test]
fn a_stale_read_is_refused() {
    bad(&[
        write(0, 1, 7, 1),
        write(2, 3, 8, 2),
        read(4, 5, found(1, 7)),
    ]);
    // Concurrent with the overwrite it may see either.
    good(&[
        write(0, 1, 7, 1),
        write(2, 6, 8, 2),
        read(4, 5, found(1, 7)),
    ]);
    good(&[
        write(0, 1, 7, 1),
        write(2, 6, 8, 2),
        read(4, 5, found(2, 8)),
    ]);
}

#[test]
fn two_reads_do_not_see_time_run_backwards() {
    bad(&[
        write(0, 1, 7, 1),
        write(2, 20, 8, 2),
        read(4, 5, found(2, 8)),
        read(6, 7, found(1, 7)),
    ]);
}

#[test]
fn a_lost_update_is_refused() {
    bad(&[write(0, 1, 7, 1), read(2, 3, ABSENT)]);
    bad(&[write(0, 1, 7, 1), write(0, 1, 8, 1)]);
    good(&[write(0, 1, 7, 1), write(0, 1, 8, 2)]);
}

#[test]
fn an_effect_that_happens_twice_is_refused() {
    // The write of 7 was carried out at version 1, and once more over 8.
    bad(&[
        write(0, 9, 7, 1),
        write(2, 3, 8, 2),
        read(4, 5, found(3, 7)),
    ]);
    // A remove that took effect twice.
    bad(&[
        write(0, 1, 7, 1),
        remove(2, 9, 1),
        write(4, 5, 8, 2),
        read(6, 7, ABSENT),
    ]);
}

#[test]
fn a_version_that_goes_back_is_refused() {
    bad(&[write(0, 1, 7, 5), remove(2, 3, 5), write(4, 5, 8, 5)]);
    bad(&[write(0, 1, 7, 5), remove(2, 3, 5), write(4, 5, 8, 1)]);
    good(&[write(0, 1, 7, 5), remove(2, 3, 5), write(4, 5, 8, 6)]);
    bad(&[write(0, 1, 7, 5), crash(2), write(4, 5, 8, 5)]);
    good(&[write(0, 1, 7, 5), crash(2), write(4, 5, 8, 1 << 40)]);
}

#[test]
fn an_overwrite_raises_the_version_by_one() {
    bad(&[write(0, 1, 7, 1), write(2, 3, 8, 3)]);
}

#[test]
fn what_nobody_saw_may_have_happened_or_not_and_late() {
    let unknown = lost(0, 7);
    good(&[unknown, read(2, 3, ABSENT)]);
    good(&[unknown, read(2, 3, found(4, 7))]);
    good(&[
        unknown,
        read(2, 3, ABSENT),
        read(4, 5, found(4, 7)),
        write(6, 7, 8, 5),
    ]);
    bad(&[unknown, read(2, 3, found(4, 7)), read(4, 5, ABSENT)]);
    bad(&[unknown, read(2, 3, found(4, 9))]);
}

#[test]
fn a_crash_takes_the_object_and_only_a_crash() {
    good(&[
        write(0, 1, 7, 1),
        crash(2),
        read(4, 5, ABSENT),
        write(6, 7, 8, 1 << 40),
    ]);
    bad(&[write(0, 1, 7, 1), crash(2), read(4, 5, found(1, 7))]);
    // The read returns after the crash, but was carried out before it.
    good(&[write(0, 1, 7, 1), read(2, 9, found(1, 7)), crash(4)]);
}

#[test]
fn a_crash_comes_as_late_as_it_has_to() {
    // The write returns after the crash that took its object.
    good(&[
        write(0, 1, 7, 1),
        remove(2, 3, 1),
        write(4, 9, 8, 2),
        crash(5),
        read(6, 7, ABSENT),
        write(8, 9, 9, 1 << 40),
    ]);
    bad(&[
        write(0, 1, 7, 1),
        remove(2, 3, 1),
        write(6, 9, 8, 2),
        crash(5),
        write(10, 11, 9, 1 << 40),
    ]);
}

#[test]
fn an_attempt_before_a_crash_may_be_repeated_after_it() {
    let attempt = op(0, 4, Input::Write(text(7), NONE), Output::Maybe);
    good(&[
        attempt,
        read(2, 3, found(1, 7)),
        crash(5),
        write(0, 9, 7, 1 << 40),
    ]);
    good(&[attempt, crash(5), write(0, 9, 7, 1 << 40)]);
    // But not two times after it.
    bad(&[
        attempt,
        crash(5),
        write(0, 9, 7, 1 << 40),
        read(10, 11, found((1 << 40) + 1, 7)),
    ]);
}

#[test]
fn reject_rules_are_held_to() {
    let exists = RejectRules {
        exists: true,
        ..NONE
    };
    let at_two = RejectRules {
        given_version: 2,
        version_ne_given: true,
        ..NONE
    };
    let absent = RejectRules {
        doesnt_exist: true,
        ..NONE
    };
    let refused = |rules, status, version| {
        op(
            2,
            3,
            Input::Write(text(9), rules),
            Output::Refused(status, version),
        )
    };
    let first = write(0, 1, 7, 1);
    good(&[first, refused(exists, Status::ObjectExists, 1)]);
    bad(&[first, refused(exists, Status::ObjectExists, 2)]);
    bad(&[first, refused(exists, Status::WrongVersion, 1)]);
    good(&[first, refused(at_two, Status::WrongVersion, 1)]);
    bad(&[first, refused(NONE, Status::WrongVersion, 1)]);
    bad(&[
        first,
        op(2, 3, Input::Write(text(9), at_two), Output::Done(2)),
    ]);
    good(&[
        first,
        write(2, 3, 8, 2),
        op(4, 5, Input::Write(text(9), at_two), Output::Done(3)),
    ]);
    bad(&[
        first,
        op(2, 3, Input::Write(text(9), exists), Output::Done(2)),
    ]);
    good(&[op(
        0,
        1,
        Input::Remove(absent),
        Output::Refused(Status::ObjectDoesntExist, 0),
    )]);
    bad(&[op(0, 1, Input::Remove(absent), Output::Done(0))]);
    bad(&[first, op(2, 3, Input::Read(exists), found(1, 7))]);
    // A conditional write that nobody saw, after one that nobody saw. (Of an absent object the version is not compared.)
    let there_at_two = RejectRules {
        doesnt_exist: true,
        ..at_two
    };
    let hidden = op(
        2,
        u64::MAX,
        Input::Write(text(9), there_at_two),
        Output::Unknown,
    );
    good(&[lost(0, 7), hidden, read(4, 5, found(3, 9))]);
    bad(&[lost(0, 7), hidden, read(4, 5, found(4, 9))]);
}

fn addend(int64: i64) -> Addend {
    Addend { int64, double: 0 }
}
fn add(call: u64, end: u64, by: i64, sum: u64, version: u64) -> Operation {
    let input = Input::Increment(addend(by), NONE);
    op(call, end, input, Output::Incremented(version, sum))
}
fn lost_add(call: u64, by: i64) -> Operation {
    let input = Input::Increment(addend(by), NONE);
    op(call, u64::MAX, input, Output::Unknown)
}
fn number(version: u64, number: u64) -> Output {
    Output::Found(version, Value::number(number).into())
}

#[test]
fn increments_add_up() {
    good(&[
        add(0, 1, 5, 5, 1),
        add(2, 3, -7, 2u64.wrapping_neg(), 2),
        read(4, 5, number(2, 2u64.wrapping_neg())),
        op(6, 7, Input::Write(Value::number(40), NONE), Output::Done(3)),
        add(8, 9, 2, 42, 4),
        remove(10, 11, 4),
        add(12, 13, 1, 1, 5),
    ]);
    bad(&[add(0, 1, 5, 6, 1)]);
    bad(&[add(0, 1, 5, 5, 1), add(2, 3, 1, 1, 2)]);
    bad(&[add(0, 1, 5, 5, 1), add(2, 3, 1, 6, 1)]);
    // Those that run at the same time may come in either order, but both see one another's.
    good(&[add(0, 9, 5, 5, 1), add(0, 9, 3, 8, 2)]);
    good(&[add(0, 9, 5, 8, 2), add(0, 9, 3, 3, 1)]);
    bad(&[add(0, 9, 5, 5, 1), add(0, 9, 3, 3, 1)]);
}

#[test]
fn doubles_are_added_after_integers() {
    let both = Addend {
        int64: 1,
        double: 0.5f64.to_bits(),
    };
    // The integer 1 is next to nothing as a double.
    let half = 0.5f64.to_bits();
    let with = |sum| {
        op(
            0,
            1,
            Input::Increment(both, NONE),
            Output::Incremented(1, sum),
        )
    };
    good(&[with(half)]);
    bad(&[with(half + 1)]);
}

#[test]
fn an_increment_that_happens_twice_is_refused() {
    // Twice, with the answer of the first time, and of the second.
    bad(&[add(0, 9, 5, 5, 1), read(10, 11, number(2, 10))]);
    bad(&[add(0, 9, 5, 10, 2)]);
    bad(&[add(0, 1, 3, 3, 1), add(2, 9, 5, 13, 3)]);
    // An unseen one counts once, or not at all, and late.
    good(&[lost_add(0, 5), read(2, 3, ABSENT), read(4, 5, number(1, 5))]);
    bad(&[lost_add(0, 5), read(2, 3, number(2, 10))]);
    bad(&[lost_add(0, 5), add(2, 3, 1, 11, 3)]);
    // A part of a multi-op that was sent twice: two at most.
    let part = [lost_add(0, 5), add(0, 9, 5, 10, 2)];
    good(&[part[0], part[1], read(10, 11, number(2, 10))]);
    bad(&[part[0], part[1], read(10, 11, number(3, 15))]);
}

#[test]
fn what_is_no_number_is_not_added_to() {
    let refused = |version| {
        let input = Input::Increment(addend(1), NONE);
        op(2, 3, input, Output::Refused(Status::InvalidObject, version))
    };
    good(&[write(0, 1, 7, 1), refused(1)]);
    bad(&[write(0, 1, 7, 1), refused(2)]);
    bad(&[add(0, 1, 7, 7, 1), refused(1)]);
    bad(&[refused(0)]);
    bad(&[write(0, 1, 7, 1), add(2, 3, 1, 8, 2)]);
    bad(&[write(0, 1, 7, 1), lost_add(2, 1), read(4, 5, found(2, 7))]);
    // Conditions come first.
    let exists = RejectRules {
        exists: true,
        ..NONE
    };
    let input = Input::Increment(addend(1), exists);
    let with = |status| op(2, 3, input, Output::Refused(status, 1));
    good(&[write(0, 1, 7, 1), with(Status::ObjectExists)]);
    bad(&[write(0, 1, 7, 1), with(Status::InvalidObject)]);
}

#[test]
fn secondary_keys_are_those_of_the_last_write() {
    let value = |keys| Value {
        content: Content::Number(9),
        keys,
    };
    let seen = |version, keys| {
        let sight = Sight {
            content: None,
            keys: Some(keys),
        };
        Output::Found(version, sight)
    };
    let first = op(
        0,
        1,
        Input::Write(value(Keys::Of(9)), NONE),
        Output::Done(1),
    );
    good(&[first, read(2, 3, seen(1, Keys::Of(9)))]);
    good(&[first, read(2, 3, number_untold(1, 9))]);
    bad(&[first, read(2, 3, seen(1, Keys::One))]);
    bad(&[first, read(2, 3, seen(1, Keys::Of(8)))]);
    // An increment leaves the primary key only.
    good(&[first, add(2, 3, 1, 10, 2), read(4, 5, seen(2, Keys::One))]);
    bad(&[first, add(2, 3, 1, 10, 2), read(4, 5, seen(2, Keys::Of(9)))]);
}

fn number_untold(version: u64, number: u64) -> Output {
    let sight = Sight {
        content: Some(Content::Number(number)),
        keys: None,
    };
    Output::Found(version, sight)
}

#[test]
fn an_unseen_version_can_let_another_unseen_operation_happen() {
    let above_one = RejectRules {
        given_version: 1,
        version_le_given: true,
        ..NONE
    };
    let hidden = op(4, u64::MAX, Input::Remove(above_one), Output::Unknown);
    good(&[write(0, 1, 7, 1), lost(2, 8), hidden, read(6, 7, ABSENT)]);
    bad(&[write(0, 1, 7, 1), hidden, read(6, 7, ABSENT)]);
}

#[test]
fn a_search_that_is_given_up_says_so() {
    let mut history: Vec<_> = (0..40).map(|value| lost(0, value)).collect();
    history.push(read(1, 2, found(60, 999)));
    assert!(matches!(check(&history, 1000), Verdict::GaveUp(_)));
}

/// Many clients, one after the other within each: a real interleaving is accepted, and any two versions swapped is not.
#[test]
fn long_histories_are_decided() {
    let mut history = Vec::new();
    for round in 0..400u64 {
        let base = round * 10;
        history.push(write(base, base + 25, 1000 + round, round + 1));
        history.push(read(base + 9, base + 14, found(round + 1, 1000 + round)));
    }
    good(&history);
    let (a, b) = (history[200].output, history[260].output);
    history[200].output = b;
    history[260].output = a;
    bad(&history);
}

#[test]
fn after_a_rebuild_an_overwrite_goes_on_from_the_floor_of_versions() {
    let made = [write(0, 1, 7, 1), rebuild(5, 100)];
    let with = |rest: &[Operation]| [&made, rest].concat();
    good(&with(&[
        read(6, 7, found(1, 7)),
        write(8, 9, 8, 100),
        write(10, 11, 9, 101),
    ]));
    // Not below it, nor anywhere above.
    bad(&with(&[write(8, 9, 8, 2)]));
    bad(&with(&[write(8, 9, 8, 101)]));
    // Nor before.
    bad(&with(&[write(2, 3, 8, 100)]));
    // One that was under way may have come before or after.
    good(&with(&[write(2, 9, 8, 2)]));
    good(&with(&[write(2, 9, 8, 100)]));
    good(&with(&[
        lost(2, 8),
        read(6, 7, found(2, 8)),
        write(8, 9, 9, 100),
    ]));
    good(&with(&[lost(2, 8), read(6, 7, found(100, 8))]));
    bad(&with(&[lost(2, 8), read(6, 7, found(50, 8))]));
    // New objects get none below it either.
    good(&with(&[remove(6, 7, 1), write(8, 9, 8, 117)]));
    bad(&with(&[remove(6, 7, 1), write(8, 9, 8, 99)]));
    // Who was above it goes on by one.
    good(&with(&[
        write(6, 7, 8, 100),
        rebuild(8, 50),
        write(9, 10, 9, 101),
    ]));
    // What was written is not lost by it.
    bad(&with(&[read(6, 7, ABSENT)]));
}
