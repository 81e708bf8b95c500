//! Histories that are known to be good, and others that are known not to be.

use super::*;

const NONE: RejectRules = RejectRules {
    given_version: 0,
    doesnt_exist: false,
    exists: false,
    version_le_given: false,
    version_ne_given: false,
};
const ABSENT: Output = Output::Refused(Status::ObjectDoesntExist, 0);

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
    op(call, end, Input::Write(value, NONE), Output::Done(version))
}
fn remove(call: u64, end: u64, version: u64) -> Operation {
    op(call, end, Input::Remove(NONE), Output::Done(version))
}
fn lost(call: u64, value: u64) -> Operation {
    op(call, u64::MAX, Input::Write(value, NONE), Output::Unknown)
}
fn crash(at: u64) -> Operation {
    op(at, at, Input::Loss, Output::Unknown)
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
        read(4, 5, Output::Found(1, 7)),
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
        read(4, 5, Output::Found(1, 7)),
    ]);
    // Concurrent with the overwrite it may see either.
    good(&[
        write(0, 1, 7, 1),
        write(2, 6, 8, 2),
        read(4, 5, Output::Found(1, 7)),
    ]);
    good(&[
        write(0, 1, 7, 1),
        write(2, 6, 8, 2),
        read(4, 5, Output::Found(2, 8)),
    ]);
}

#[test]
fn two_reads_do_not_see_time_run_backwards() {
    bad(&[
        write(0, 1, 7, 1),
        write(2, 20, 8, 2),
        read(4, 5, Output::Found(2, 8)),
        read(6, 7, Output::Found(1, 7)),
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
        read(4, 5, Output::Found(3, 7)),
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
    good(&[unknown, read(2, 3, Output::Found(4, 7))]);
    good(&[
        unknown,
        read(2, 3, ABSENT),
        read(4, 5, Output::Found(4, 7)),
        write(6, 7, 8, 5),
    ]);
    bad(&[unknown, read(2, 3, Output::Found(4, 7)), read(4, 5, ABSENT)]);
    bad(&[unknown, read(2, 3, Output::Found(4, 9))]);
}

#[test]
fn a_crash_takes_the_object_and_only_a_crash() {
    good(&[
        write(0, 1, 7, 1),
        crash(2),
        read(4, 5, ABSENT),
        write(6, 7, 8, 1 << 40),
    ]);
    bad(&[write(0, 1, 7, 1), crash(2), read(4, 5, Output::Found(1, 7))]);
    // The read returns after the crash, but was carried out before it.
    good(&[write(0, 1, 7, 1), read(2, 9, Output::Found(1, 7)), crash(4)]);
}

#[test]
fn an_attempt_before_a_crash_may_be_repeated_after_it() {
    let attempt = op(0, 4, Input::Write(7, NONE), Output::Maybe);
    good(&[
        attempt,
        read(2, 3, Output::Found(1, 7)),
        crash(5),
        write(0, 9, 7, 1 << 40),
    ]);
    good(&[attempt, crash(5), write(0, 9, 7, 1 << 40)]);
    // But not two times after it.
    bad(&[
        attempt,
        crash(5),
        write(0, 9, 7, 1 << 40),
        read(10, 11, Output::Found((1 << 40) + 1, 7)),
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
            Input::Write(9, rules),
            Output::Refused(status, version),
        )
    };
    let first = write(0, 1, 7, 1);
    good(&[first, refused(exists, Status::ObjectExists, 1)]);
    bad(&[first, refused(exists, Status::ObjectExists, 2)]);
    bad(&[first, refused(exists, Status::WrongVersion, 1)]);
    good(&[first, refused(at_two, Status::WrongVersion, 1)]);
    bad(&[first, refused(NONE, Status::WrongVersion, 1)]);
    bad(&[first, op(2, 3, Input::Write(9, at_two), Output::Done(2))]);
    good(&[
        first,
        write(2, 3, 8, 2),
        op(4, 5, Input::Write(9, at_two), Output::Done(3)),
    ]);
    bad(&[first, op(2, 3, Input::Write(9, exists), Output::Done(2))]);
    good(&[op(
        0,
        1,
        Input::Remove(absent),
        Output::Refused(Status::ObjectDoesntExist, 0),
    )]);
    bad(&[op(0, 1, Input::Remove(absent), Output::Done(0))]);
    bad(&[first, op(2, 3, Input::Read(exists), Output::Found(1, 7))]);
    // A conditional write that nobody saw, after one that nobody saw. (Of an absent object the version is not compared.)
    let there_at_two = RejectRules {
        doesnt_exist: true,
        ..at_two
    };
    let hidden = op(2, u64::MAX, Input::Write(9, there_at_two), Output::Unknown);
    good(&[lost(0, 7), hidden, read(4, 5, Output::Found(3, 9))]);
    bad(&[lost(0, 7), hidden, read(4, 5, Output::Found(4, 9))]);
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
    history.push(read(1, 2, Output::Found(60, 999)));
    assert!(matches!(check(&history, 1000), Verdict::GaveUp(_)));
}

/// Many clients, one after the other within each: a real interleaving is accepted, and any two versions swapped is not.
#[test]
fn long_histories_are_decided() {
    let mut history = Vec::new();
    for round in 0..400u64 {
        let base = round * 10;
        history.push(write(base, base + 25, 1000 + round, round + 1));
        history.push(read(
            base + 9,
            base + 14,
            Output::Found(round + 1, 1000 + round),
        ));
    }
    good(&history);
    let (a, b) = (history[200].output, history[260].output);
    history[200].output = b;
    history[260].output = a;
    bad(&history);
}
