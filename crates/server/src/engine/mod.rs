//! Engines: what really runs workers. One today: processes on this machine.

pub mod local;
