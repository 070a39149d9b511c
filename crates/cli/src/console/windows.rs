//! Windows: the console's echo is switched off, its understanding of colours on.

use std::io;
use std::os::windows::io::AsRawHandle;

use windows_sys::Win32::System::Console::{
    CONSOLE_MODE, ENABLE_ECHO_INPUT, ENABLE_VIRTUAL_TERMINAL_PROCESSING, GetConsoleMode, GetStdHandle,
    STD_ERROR_HANDLE, STD_OUTPUT_HANDLE, SetConsoleMode,
};

/// Asks the console to understand colours; an old one that does not shows their codes, as `NO_COLOR` prevents.
pub fn prepare() {
    for stream in [STD_OUTPUT_HANDLE, STD_ERROR_HANDLE] {
        let mut mode = 0;
        // SAFETY: these handles are open for the whole process; the calls fill and take a number.
        unsafe {
            let handle = GetStdHandle(stream);
            if GetConsoleMode(handle, &mut mode) != 0 {
                SetConsoleMode(handle, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
            }
        }
    }
}

/// While it lives, the console does not show what is typed.
pub struct Silence {
    before: CONSOLE_MODE,
}

impl Silence {
    pub fn begin() -> io::Result<Silence> {
        let mut before = 0;
        // SAFETY: stdin's handle is open for the whole process; the call fills the number.
        if unsafe { GetConsoleMode(io::stdin().as_raw_handle(), &mut before) } == 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as above; the call takes a number.
        if unsafe { SetConsoleMode(io::stdin().as_raw_handle(), before & !ENABLE_ECHO_INPUT) } == 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Silence { before })
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        // The line's end was not shown either; only stderr is a person's.
        eprintln!();
        // SAFETY: gives the console back what it said before.
        unsafe {
            SetConsoleMode(io::stdin().as_raw_handle(), self.before);
        }
    }
}
