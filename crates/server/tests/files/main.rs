//! The file service of a whole server, through the typed client and byte by byte.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod awkward;
mod breaking;
mod confinement;
mod expiring;
mod full;
mod hostile;
mod load;
mod old;
mod quota;
mod ranges;
mod service;
mod shares;
mod stage;
mod superseded;
mod transfers;
