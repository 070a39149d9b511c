//! The real programs, driven as a user does.
