//! Shortages of this machine or of the server itself: file descriptors, memory, processes, disk space. They are
//! temporary, so they are a reason to wait and never the failure of a job.

use std::error::Error;
use std::io;

use rustix::io::Errno;

/// The system's errors for an exhausted resource.
const SHORT: [Errno; 6] = [
    Errno::MFILE,
    Errno::NFILE,
    Errno::NOMEM,
    Errno::NOBUFS,
    Errno::NOSPC,
    // No more processes.
    Errno::AGAIN,
];

/// Whether an exhausted resource caused this error. A user's own quota is not a shortage.
pub fn is_shortage(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(is_short) {
            return true;
        }
        cause = error.source();
    }
    false
}

fn is_short(error: &io::Error) -> bool {
    let inner = error.get_ref().map(|inner| inner as &(dyn Error + 'static));
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    code.is_some_and(|code| SHORT.contains(&code)) || inner.is_some_and(is_shortage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_recognized_inside_other_errors() {
        for code in SHORT {
            let plain = io::Error::from(code);
            assert!(is_shortage(&plain), "{plain}");
            assert!(is_shortage(&io::Error::other(plain)));
        }
        for code in [Errno::NOENT, Errno::ACCESS, Errno::DQUOT, Errno::NOEXEC] {
            assert!(!is_shortage(&io::Error::from(code)), "{code}");
        }
        assert!(!is_shortage(&io::Error::other("in words")));
    }
}
