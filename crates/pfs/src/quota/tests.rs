//! What fits, what does not, and what is released.

use super::*;

fn space() -> Space {
    Space::Home("ann".parse().unwrap())
}

fn amount(bytes: u64, files: u64) -> Amount {
    Amount { bytes, files }
}

fn limited(bytes: u64, files: u64) -> Ledger {
    let ledger = Ledger::default();
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
        "11 more bytes do not fit: 90 of 100 bytes are used in the home of ann"
    );
    ledger.reserve(&space(), amount(10, 1)).unwrap();
}

#[test]
fn files_are_limited_too() {
    let ledger = limited(100, 1);
    ledger
        .reserve(&space(), amount(1, 1))
        .unwrap()
        .charge(amount(1, 1), amount(0, 0));
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
fn running_writes_count_and_failed_ones_are_released() {
    let ledger = limited(100, 10);
    let running = ledger.reserve(&space(), amount(60, 1)).unwrap();
    assert!(ledger.reserve(&space(), amount(60, 1)).is_err());
    assert_eq!(ledger.report(&space()).1, amount(60, 1));
    drop(running);
    assert_eq!(ledger.report(&space()).1, amount(0, 0));
    ledger.reserve(&space(), amount(60, 1)).unwrap();
}

#[test]
fn existing_bytes_count_even_above_the_limit() {
    let ledger = limited(100, 10);
    let found = ledger.claim(&space(), amount(120, 1));
    assert_eq!(ledger.report(&space()).1, amount(120, 1));
    assert!(ledger.reserve(&space(), amount(1, 0)).is_err());
    drop(found);
    ledger.reserve(&space(), amount(100, 1)).unwrap();
}

#[test]
fn replaced_and_removed_bytes_become_free() {
    let ledger = limited(100, 10);
    ledger.measured(&space(), ledger.measure(&space()), amount(50, 1));
    ledger
        .reserve(&space(), amount(40, 1))
        .unwrap()
        .charge(amount(40, 1), amount(50, 1));
    assert_eq!(ledger.report(&space()).1, amount(40, 1));
    ledger.removed(&space(), amount(40, 1));
    assert_eq!(ledger.report(&space()).1, amount(0, 0));
}

#[test]
fn a_file_that_replaces_another_needs_room_for_both() {
    let ledger = limited(100, 10);
    ledger.measured(&space(), ledger.measure(&space()), amount(60, 1));
    let refused = ledger.reserve(&space(), amount(60, 1)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "60 more bytes do not fit: 60 of 100 bytes are used in the home of ann"
    );
    let new = ledger.reserve(&space(), amount(40, 1)).unwrap();
    new.charge(amount(40, 1), amount(60, 1));
    assert_eq!(ledger.report(&space()).1, amount(40, 1));
}

#[test]
fn staged_bytes_count_only_beyond_reservations() {
    let ledger = limited(100, 10);
    ledger.measured(&space(), ledger.measure(&space()), amount(20, 1));
    let (_new, _more) = (
        ledger.reserve(&space(), amount(40, 1)).unwrap(),
        ledger.reserve(&space(), amount(10, 1)).unwrap(),
    );
    let measuring = ledger.measure(&space());
    assert_eq!(
        ledger.unreserved(&space(), &measuring, amount(50, 2)),
        amount(0, 0)
    );
    assert_eq!(
        ledger.unreserved(&space(), &measuring, amount(70, 5)),
        amount(20, 3)
    );
    // A write that started and ended during the measurement may have been seen.
    let brief = ledger.reserve(&space(), amount(15, 1)).unwrap();
    brief.charge(amount(15, 1), amount(0, 0));
    assert_eq!(
        ledger.unreserved(&space(), &measuring, amount(65, 3)),
        amount(0, 0)
    );
}

#[test]
fn a_space_filled_by_jobs_refuses_new_writes_until_it_fits_again() {
    let ledger = limited(100, 10);
    ledger.measured(&space(), ledger.measure(&space()), amount(500, 1));
    assert!(ledger.not_over(&space()).is_err());
    assert!(ledger.reserve(&space(), amount(1, 0)).is_err());
    ledger
        .reserve(&space(), amount(0, 0))
        .expect("what adds nothing, such as a rename, still works");
    ledger.measured(&space(), ledger.measure(&space()), amount(10, 1));
    ledger.not_over(&space()).unwrap();
}

#[test]
fn writes_during_a_measurement_are_counted() {
    let ledger = limited(100, 10);
    let measuring = ledger.measure(&space());
    let written = ledger.reserve(&space(), amount(60, 1)).unwrap();
    written.charge(amount(60, 1), amount(0, 0));
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
                        reservation.charge(amount(3, 1), amount(0, 0));
                    }
                }
            });
        }
    });
    assert_eq!(ledger.report(&space()).1.bytes, 999);
}
