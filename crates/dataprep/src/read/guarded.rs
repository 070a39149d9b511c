//! Calls into a library that panics on some damaged files; the panic becomes an error.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs the work, or returns its panic message. The data involved must not be used afterwards.
pub(super) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(keep_quiet);
    let before = IS_GUARDED.replace(true);
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    IS_GUARDED.set(before);
    done.map_err(|payload| words(payload.as_ref()))
}

/// A caught panic is not reported as a crash; every other panic is, as before.
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
    text.unwrap_or("the file is malformed").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_message_and_a_value_is_returned() {
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
