//! One small process per worker: isolates it, captures its output, records its end.
