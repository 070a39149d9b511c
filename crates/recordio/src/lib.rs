//! The RecordIO file format.
