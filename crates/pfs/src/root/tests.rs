//! Nothing gets out of a root: not by text, not by links, not by links swapped meanwhile.
