//! Which names Windows allows for files, and which have a special meaning there.
//!
//! On the cluster a name is any bytes. On Windows `\` and `:` lead elsewhere, `nul` is a device, and a trailing dot is silently
//! dropped: such names are refused, never changed. Handles only text, so it is tested on all systems.

const DEVICES: [&str; 6] = ["con", "prn", "aux", "nul", "conin$", "conout$"];

/// Whether a file may have this name.
pub(super) fn is_allowed(name: &str) -> bool {
    let is_plain = |c: char| !c.is_control() && !"/\\:*?\"<>|".contains(c);
    !name.is_empty() && name.chars().all(is_plain) && !name.ends_with(['.', ' ']) && !is_device(name)
}

/// `nul`, `NUL.txt` and `com1` are devices in every folder.
fn is_device(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default().trim_end();
    let stem = stem.to_lowercase();
    let is_numbered = |kind: &str| {
        let mut rest = stem.strip_prefix(kind).unwrap_or_default().chars();
        matches!(rest.next(), Some('1'..='9' | '¹' | '²' | '³')) && rest.next().is_none()
    };
    DEVICES.contains(&stem.as_str()) || is_numbered("com") || is_numbered("lpt")
}

/// Converts the target of a Windows link to the cluster's notation. A target with a drive gets a leading `/`, so that it is
/// recognized as absolute.
pub(super) fn link_from_windows(target: &str) -> String {
    let text = target.replace('\\', "/");
    match text.starts_with('/') || !text.contains(':') {
        true => text,
        false => format!("/{text}"),
    }
}

/// Converts the target of a link to Windows notation; `None` if that is impossible.
pub(super) fn link_to_windows(target: &str) -> Option<String> {
    let is_step = |part: &str| matches!(part, "" | "." | "..") || is_allowed(part);
    let is_relative = !target.starts_with('/') && target.split('/').all(is_step);
    is_relative.then(|| target.replace('/', "\\"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_a_special_meaning_on_windows_are_refused() {
        for name in [
            "", ".", "..", "a.", "a ", "a\\b", "..\\b", "c:", "a:b", "a*", "a?", "a|b", "\"", "a\tb", "nul",
            "NUL.txt", "Com1", "lpt9.x", "aux .c", "CONOUT$", "com²",
        ] {
            assert!(!is_allowed(name), "{name:?}");
        }
        for name in [
            "a", ".hidden", "a.b", "console", "com", "com10", "nulls", "lpt0", "ünï", "a b",
        ] {
            assert!(is_allowed(name), "{name:?}");
        }
    }

    #[test]
    fn windows_link_targets_are_converted() {
        assert_eq!(link_from_windows("..\\a\\b"), "../a/b");
        assert_eq!(link_from_windows("C:\\Users"), "/C:/Users");
        assert_eq!(link_from_windows("c:users"), "/c:users");
        assert_eq!(link_from_windows("\\\\host\\share"), "//host/share");
    }

    #[test]
    fn a_link_is_created_only_if_it_means_the_same_on_windows() {
        assert_eq!(link_to_windows("../a/./b").as_deref(), Some("..\\a\\.\\b"));
        for target in ["/etc/passwd", "c:/x", "a\\..\\..\\b", "a/nul", "x/con.txt"] {
            assert_eq!(link_to_windows(target), None, "{target}");
        }
    }
}
