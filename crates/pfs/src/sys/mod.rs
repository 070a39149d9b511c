//! The operating system calls that this crate uses.
//!
//! On Unix they are system calls; `linux` and `elsewhere` cover those that only Linux has. On Windows, `windows` implements the
//! same interface. No other file of this crate names a system.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;
#[cfg(any(windows, test))]
mod windows_names;

#[cfg(not(target_os = "linux"))]
pub(crate) use self::elsewhere::*;
#[cfg(target_os = "linux")]
pub(crate) use self::linux::*;
#[cfg(unix)]
pub(crate) use self::unix::*;
#[cfg(windows)]
pub(crate) use self::windows::*;

#[cfg(unix)]
pub use self::unix::{FileExt, KEEPS_EXECUTABLE_BITS};
#[cfg(windows)]
pub use self::windows::{FileExt, KEEPS_EXECUTABLE_BITS};
