//! The registry of an image, by which a login for it is found.

/// Docker's own registry, the default for images without a host.
const USUAL_REGISTRY: &str = "docker.io";

/// The host of an image's registry.
pub fn image_host(image: &str) -> &str {
    match image.split_once('/') {
        Some((first, _)) if is_registry(first) => usual_host(first),
        _ => USUAL_REGISTRY,
    }
}

/// Whether the first component of an image's path is a host: one without a dot or a port is not.
pub fn is_registry(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost"
}

/// The name of a registry's host that has several.
pub fn usual_host(host: &str) -> &str {
    match host {
        "index.docker.io" | "registry-1.docker.io" | "hub.docker.com" => USUAL_REGISTRY,
        other => other,
    }
}
