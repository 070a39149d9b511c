//! Chunks, digests, manifests and the transfer engine of the file service.
