//! The file service of a whole server, through the typed client and byte by byte.

mod breaking;
mod confinement;
mod old;
mod quota;
mod service;
mod shares;
mod stage;
mod transfers;
