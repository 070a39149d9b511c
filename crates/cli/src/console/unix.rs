//! Unix: switches off the terminal's echo; colours always work.

use std::io;

/// Terminals understand colours.
pub fn prepare() {}

/// While it lives, the terminal does not echo what is typed.
pub struct Silence {
    before: libc::termios,
}

impl Silence {
    pub fn begin() -> io::Result<Silence> {
        // SAFETY: `termios` is plain data, filled by tcgetattr before it is used.
        unsafe {
            let mut before = std::mem::zeroed();
            if libc::tcgetattr(libc::STDIN_FILENO, &mut before) != 0 {
                return Err(io::Error::last_os_error());
            }
            let mut silent = before;
            silent.c_lflag &= !libc::ECHO;
            silent.c_lflag |= libc::ECHONL;
            if libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &silent) != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Silence { before })
        }
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        // SAFETY: restores the settings that tcgetattr returned.
        unsafe {
            libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &self.before);
        }
    }
}
