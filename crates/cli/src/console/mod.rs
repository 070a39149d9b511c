//! What must be asked of the terminal itself: not to show what is typed, and to understand colours.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use self::unix::{Silence, prepare};
#[cfg(windows)]
pub use self::windows::{Silence, prepare};
