//! Tests of the conductor.
