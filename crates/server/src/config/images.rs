//! The images that jobs may run in, as patterns.
//!
//! `*` stands for any characters except `/`, and `**` for any characters. Names without a registry are Docker Hub's, as for
//! container runtimes, so a pattern without a registry never matches an image of another one.

use std::fmt;

use paddlecloud_accounts::secrets::{image_host, is_registry};
use serde::{Deserialize, Deserializer};

/// The images that a configuration allows: one pattern, or a list of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedImages(Vec<String>);

impl AllowedImages {
    pub fn allows(&self, image: &str) -> bool {
        let image = in_full(image);
        self.0
            .iter()
            .any(|pattern| matches(&pattern_in_full(pattern), &image))
    }
}

impl fmt::Display for AllowedImages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let patterns: Vec<String> = self.0.iter().map(|pattern| format!("`{pattern}`")).collect();
        f.write_str(&patterns.join(", "))
    }
}

impl<'de> Deserialize<'de> for AllowedImages {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Shape {
            One(String),
            Many(Vec<String>),
        }
        let patterns = match Shape::deserialize(deserializer)? {
            Shape::One(pattern) => vec![pattern],
            Shape::Many(patterns) => patterns,
        };
        match patterns.iter().any(|pattern| pattern.trim().is_empty()) {
            true => Err(D::Error::custom("`allowed_images` has an empty pattern")),
            false => Ok(AllowedImages(patterns)),
        }
    }
}

/// The image with its registry: `docker.io/library/python:3`.
fn in_full(image: &str) -> String {
    let host = image_host(image);
    match image.split_once('/') {
        Some((first, path)) if is_registry(first) => format!("{host}/{path}"),
        Some(_) => format!("{host}/{image}"),
        None => format!("{host}/library/{image}"),
    }
}

fn pattern_in_full(pattern: &str) -> String {
    let first = pattern.split('/').next().unwrap_or(pattern);
    // Without a dot or a port, the first part is an organisation of Docker Hub, `*` in it or not.
    let names_registries = pattern.contains('/') && first.contains('*') && is_registry(first);
    let is_any_registry = pattern.starts_with("**") || names_registries;
    match is_any_registry {
        true => pattern.to_owned(),
        false => in_full(pattern),
    }
}

fn matches(pattern: &str, image: &str) -> bool {
    let image = image.as_bytes();
    // Which beginnings of the image the pattern so far matches.
    let mut reached = vec![false; image.len() + 1];
    reached[0] = true;
    let mut rest = pattern.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'*' {
            for at in (0..image.len()).rev() {
                reached[at + 1] = reached[at] && image[at] == first;
            }
            reached[0] = false;
            continue;
        }
        let crosses = rest.first() == Some(&b'*');
        rest = rest.strip_prefix(b"*").unwrap_or(rest);
        for at in 0..image.len() {
            reached[at + 1] |= reached[at] && (crosses || image[at] != b'/');
        }
    }
    reached[image.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(patterns: &[&str], image: &str) -> bool {
        AllowedImages(patterns.iter().map(|pattern| (*pattern).to_owned()).collect()).allows(image)
    }

    #[test]
    fn a_star_stays_within_one_part_of_the_name() {
        let team = ["registry.example.org/team/*"];
        assert!(allowed(&team, "registry.example.org/team/app:1"));
        assert!(allowed(&team, "registry.example.org/team/app@sha256:00"));
        assert!(!allowed(&team, "registry.example.org/team/sub/app"));
        assert!(!allowed(&team, "registry.example.org/other/app"));
        assert!(!allowed(&team, "registry.example.org.evil.net/team/app"));
        assert!(allowed(
            &["registry.example.org/**"],
            "registry.example.org/a/b/c:1"
        ));
        assert!(allowed(&["**"], "any.example.org:5000/a/b") && allowed(&["**"], "python"));
        assert!(allowed(&["x", "*.example.org/app"], "eu.example.org/app"));
        assert!(allowed(
            &["r.io/*a*a*a*a*a*a*b"],
            &format!("r.io/{}b", "a".repeat(200))
        ));
        assert!(!allowed(
            &["r.io/*a*a*a*a*a*a*b"],
            &format!("r.io/{}", "a".repeat(200))
        ));
    }

    #[test]
    fn names_without_a_registry_are_those_of_docker_hub() {
        for (pattern, image) in [
            ("python:3*", "python:3.13"),
            ("python:3*", "docker.io/library/python:3.13"),
            ("docker.io/library/python:3.13", "python:3.13"),
            ("docker.io/team/*", "index.docker.io/team/app"),
            ("team/*", "team/app"),
            ("team*/app", "team2/app"),
            ("*/app", "team/app"),
            ("*.example.org/app", "eu.example.org/app"),
            ("*:5000/app", "eu.example.org:5000/app"),
        ] {
            assert!(allowed(&[pattern], image), "{pattern} {image}");
        }
        for (pattern, image) in [
            ("python*", "python.evil.net/app"),
            ("python*", "evil.net/python"),
            ("team/*", "evil.net/team/app"),
            ("team/**", "team.evil.net/app"),
            ("localhost/*", "localhost.evil.net/app"),
            ("team*/app", "team.evil.net/app"),
            ("*/app", "evil.net/app"),
            ("python**", "python.evil.net/app"),
        ] {
            assert!(!allowed(&[pattern], image), "{pattern} {image}");
        }
    }
}
