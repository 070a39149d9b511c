//! The supervisor against the real kernel: as root and as nobody, with and without namespaces.
