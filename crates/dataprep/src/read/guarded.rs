//! Calls into a library that answers some damaged files with a panic; here that is an answer like others.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Does the work, or tells in words what it panicked with. Whatever the work was about must not be used afterwards.
pub(super) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(keep_quiet);
    let before = IS_GUARDED.replace(true);
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    IS_GUARDED.set(before);
    done.map_err(|payload| words(payload.as_ref()))
}

/// What is caught is not reported as a crash; every other panic is, as before.
fn keep_quiet() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !IS_GUARDED.get() {
            report(info);
        }
    }));
}

fn words(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("the file makes no sense").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_words_and_a_value_stays_one() {
        assert_eq!(guarded(|| 7), Ok(7));
        let width = 3;
        assert_eq!(
            guarded(|| panic!("width {width}")),
            Err::<(), _>("width 3".to_owned())
        );
        assert_eq!(guarded(|| panic!("plain")), Err::<(), _>("plain".to_owned()));
        assert!(!IS_GUARDED.get());
    }
}
