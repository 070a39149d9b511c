//! The domain: jobs, plans, scheduling. Values in, values out.
