//! What fits, what does not, and what is released.

use super::*;

fn space() -> Space {
    Space::Home("ann".parse().unwrap())
}

fn amount(bytes: u64, files: u64) -> Amount {
    Amount { bytes, files }
}

fn at(path: &str) -> Place {
    Place {
        space: space(),
        path: path.parse().unwrap(),
    }
}

fn limited(bytes: u64, files: u64) -> Ledger {
    let ledger = Ledger::new();
    ledger.limit(
        &space(),
        Quota {
            bytes: Some(bytes),
            files: Some(files),
        },
    );
    ledger
}

#[test]
fn a_write_that_does_not_fit_names_limit_and_use() {
    let ledger = limited(100, 10);
    ledger.measured(&space(), ledger.measure(&space()), amount(90, 1));
    let error = ledger.reserve(&space(), amount(11, 1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "11 more bytes do not fit: 90 of 100 bytes are used in home/ann"
    );
    ledger.reserve(&space(), amount(10, 1)).unwrap();
}

#[test]
fn files_are_limited_too() {
    let ledger = limited(100, 1);
    ledger
        .reserve(&space(), amount(1, 1))
        .unwrap()
        .settle(amount(1, 1), amount(0, 0));
    let error = ledger.reserve(&space(), amount(0, 1)).unwrap_err();
    assert!(matches!(
        error,
        QuotaError::Files {
            used: 1,
            limit: 1,
            ..
        }
    ));
}

#[test]
fn running_writes_count_and_broken_ones_are_given_back() {
    let ledger = limited(100, 10);
    let running = ledger.reserve(&space(), amount(60, 1)).unwrap();
    assert!(ledger.reserve(&space(), amount(60, 1)).is_err());
    assert_eq!(ledger.report(&space()).1, amount(60, 1));
    drop(running);
    assert_eq!(ledger.report(&space()).1, amount(0, 0));
    ledger.reserve(&space(), amount(60, 1)).unwrap();
}

#[test]
fn what_is_there_already_counts_even_where_it_does_not_fit() {
    let ledger = limited(100, 10);
    let found = ledger.claim_at(&at("f"), amount(120, 1), amount(0, 0));
    assert_eq!(ledger.report(&space()).1, amount(120, 1));
    assert!(ledger.reserve(&space(), amount(1, 0)).is_err());
    drop(found);
    ledger.reserve(&space(), amount(100, 1)).unwrap();
}

#[test]
fn replacing_counts_the_difference_and_removing_frees() {
    let ledger = limited(100, 10);
    ledger.measured(&space(), ledger.measure(&space()), amount(50, 1));
    ledger
        .reserve(&space(), amount(40, 1))
        .unwrap()
        .settle(amount(40, 1), amount(50, 1));
    assert_eq!(ledger.report(&space()).1, amount(40, 1));
    ledger.removed(&space(), amount(40, 1));
    assert_eq!(ledger.report(&space()).1, amount(0, 0));
}

#[test]
fn at_a_full_quota_a_file_is_replaced_by_one_that_is_not_larger_than_it_and_what_is_free() {
    let ledger = limited(100, 2);
    ledger.measured(&space(), ledger.measure(&space()), amount(90, 2));
    let refused = ledger.reserve_at(&at("f"), amount(51, 1), amount(40, 1));
    assert_eq!(
        refused.unwrap_err().to_string(),
        "11 more bytes do not fit: 90 of 100 bytes are used in home/ann"
    );
    let new = ledger.reserve_at(&at("f"), amount(50, 1), amount(40, 1)).unwrap();
    assert_eq!(new.whole(), amount(50, 1));
    assert_eq!(ledger.report(&space()).1, amount(100, 2), "with what it adds");
    new.settle(amount(50, 1), amount(40, 1));
    assert_eq!(ledger.report(&space()).1, amount(100, 2));
}

#[test]
fn what_gives_way_makes_room_for_one_writer_at_a_time() {
    let ledger = limited(100, 10);
    ledger.measured(&space(), ledger.measure(&space()), amount(90, 1));
    let first = ledger.reserve_at(&at("f"), amount(90, 1), amount(90, 1)).unwrap();
    assert!(ledger.reserve_at(&at("f"), amount(90, 1), amount(90, 1)).is_err());
    drop(first);
    assert_eq!(ledger.report(&space()).1, amount(90, 1));
    ledger.reserve_at(&at("f"), amount(90, 1), amount(90, 1)).unwrap();
}

#[test]
fn a_file_longer_than_all_that_may_be_stored_is_no_permit_for_another() {
    let ledger = limited(100, 10);
    ledger.measured(&space(), ledger.measure(&space()), amount(60, 2));
    let refused = ledger.reserve_at(&at("sparse"), amount(1000, 1), amount(1000, 1));
    assert!(refused.is_err(), "nobody measured it yet");
    let mut begun = ledger.reserve_at(&at("f"), amount(60, 1), amount(60, 1)).unwrap();
    ledger.measured(&space(), ledger.measure(&space()), amount(1060, 3));
    for size in [1, 1000] {
        let refused = ledger.reserve_at(&at("sparse"), amount(size, 1), amount(1000, 1));
        assert_eq!(
            refused.unwrap_err().to_string(),
            "nothing may be written until something is removed: 1060 of 100 bytes are used in home/ann",
            "{size}"
        );
    }
    assert!(begun.fit(amount(60, 1), amount(60, 1)).is_err());
    ledger.measured(&space(), ledger.measure(&space()), amount(100, 10));
    begun.fit(amount(60, 1), amount(60, 1)).unwrap();
    drop(begun);
    ledger
        .reserve_at(&at("f"), amount(100, 1), amount(100, 1))
        .unwrap();
}

#[test]
fn who_set_all_of_it_aside_is_done_even_if_others_filled_the_space() {
    let ledger = limited(100, 10);
    let mut new = ledger.reserve(&space(), amount(60, 1)).unwrap();
    ledger.measured(&space(), ledger.measure(&space()), amount(90, 1));
    new.fit(amount(60, 1), amount(20, 1)).unwrap();
}

#[test]
fn what_was_to_give_way_and_is_gone_must_have_left_its_room() {
    let ledger = limited(100, 10);
    ledger.measured(&space(), ledger.measure(&space()), amount(90, 1));
    let mut new = ledger.reserve_at(&at("f"), amount(90, 1), amount(90, 1)).unwrap();
    ledger.removed(&space(), amount(90, 1));
    let other = ledger.reserve(&space(), amount(20, 1)).unwrap();
    assert_eq!(
        new.fit(amount(90, 1), amount(0, 0)).unwrap_err().to_string(),
        "90 more bytes do not fit: 20 of 100 bytes are used in home/ann"
    );
    drop(other);
    new.fit(amount(90, 1), amount(0, 0)).unwrap();
    new.settle(amount(90, 1), amount(0, 0));
    assert_eq!(ledger.report(&space()).1, amount(90, 1));
}

#[test]
fn of_what_is_staged_that_counts_which_no_write_set_room_aside_for() {
    let ledger = limited(100, 10);
    ledger.measured(&space(), ledger.measure(&space()), amount(40, 1));
    let (_new, _more) = (
        ledger.reserve_at(&at("f"), amount(40, 1), amount(40, 1)).unwrap(),
        ledger.reserve(&space(), amount(10, 1)).unwrap(),
    );
    let measuring = ledger.measure(&space());
    assert_eq!(ledger.nobodys(&space(), &measuring, amount(50, 2)), amount(0, 0));
    assert_eq!(ledger.nobodys(&space(), &measuring, amount(70, 5)), amount(20, 3));
    // A write that started and ended during the measurement may have been seen.
    let brief = ledger.reserve(&space(), amount(15, 1)).unwrap();
    brief.settle(amount(15, 1), amount(0, 0));
    assert_eq!(ledger.nobodys(&space(), &measuring, amount(65, 3)), amount(0, 0));
}

#[test]
fn a_space_filled_by_jobs_refuses_new_writes_until_it_fits_again() {
    let ledger = limited(100, 10);
    ledger.measured(&space(), ledger.measure(&space()), amount(500, 1));
    assert!(ledger.is_over(&space()));
    assert!(ledger.reserve(&space(), amount(1, 0)).is_err());
    ledger
        .reserve(&space(), amount(0, 0))
        .expect("what adds nothing, such as a rename, still works");
    ledger.measured(&space(), ledger.measure(&space()), amount(10, 1));
    assert!(!ledger.is_over(&space()));
}

#[test]
fn what_is_written_while_a_space_is_measured_is_not_forgotten() {
    let ledger = limited(100, 10);
    let measuring = ledger.measure(&space());
    let written = ledger.reserve(&space(), amount(60, 1)).unwrap();
    written.settle(amount(60, 1), amount(0, 0));
    ledger.measured(&space(), measuring, amount(30, 1));
    assert_eq!(ledger.report(&space()).1, amount(90, 2));
    ledger.measured(&space(), ledger.measure(&space()), amount(60, 1));
    assert_eq!(ledger.report(&space()).1, amount(60, 1));
}

#[test]
fn racing_writers_never_exceed_the_limit_together() {
    let ledger = limited(1000, 1_000_000);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    if let Ok(reservation) = ledger.reserve(&space(), amount(3, 1)) {
                        reservation.settle(amount(3, 1), amount(0, 0));
                    }
                }
            });
        }
    });
    assert_eq!(ledger.report(&space()).1.bytes, 999);
}
