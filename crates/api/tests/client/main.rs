//! The client against servers that misbehave on purpose.

mod calls;
mod following;
mod scripted;
mod sockets;
