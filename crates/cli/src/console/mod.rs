//! Settings of the terminal itself: no echo while a password is typed, and colours.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use self::unix::{Silence, prepare};
#[cfg(windows)]
pub use self::windows::{Silence, prepare};
