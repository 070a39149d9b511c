//! The program paddle that runs inside a worker.
