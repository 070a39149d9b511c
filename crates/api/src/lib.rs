//! Wire types, error names and the typed client.
