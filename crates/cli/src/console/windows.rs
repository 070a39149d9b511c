//! Windows: switches off the console's echo and enables colours.

use std::io;
use std::os::windows::io::AsRawHandle;

use windows_sys::Win32::System::Console::{
    CONSOLE_MODE, ENABLE_ECHO_INPUT, ENABLE_VIRTUAL_TERMINAL_PROCESSING, GetConsoleMode, GetStdHandle,
    STD_ERROR_HANDLE, STD_OUTPUT_HANDLE, SetConsoleMode,
};

/// Enables colours in the console; an old one without support shows their codes, unless `NO_COLOR` is set.
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

/// While it lives, the console does not echo what is typed.
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
        // The line end was not echoed either; only stderr is for people.
        eprintln!();
        // SAFETY: restores the console's previous mode.
        unsafe {
            SetConsoleMode(io::stdin().as_raw_handle(), self.before);
        }
    }
}
