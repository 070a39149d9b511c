//! Guesses which known word was meant.

/// No name of ours is longer than this, typing errors included.
const LONGEST: usize = 64;

/// The candidate that is close enough, if there is one.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let most = if word.len() <= 3 { 1 } else { 2 };
    // Comparing costs the product of both lengths, and the word comes from an untrusted client.
    if word.len() > LONGEST {
        return None;
    }
    candidates
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Treats upper and lower case as equal, and `-`, `_` and no separator.
fn distance(left: &str, right: &str) -> usize {
    let plain = |word: &str| word.to_lowercase().replace(['-', '_'], "");
    strsim::damerau_levenshtein(&plain(left), &plain(right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_finger_are_seen_through_and_strangers_are_not() {
        let words = ["parallelism", "memory", "cpu"];
        let near = |word| nearest(word, words.into_iter());
        assert_eq!(near("paralelism"), Some("parallelism"));
        assert_eq!(near("Memory"), Some("memory"));
        assert_eq!(near("cup"), Some("cpu"));
        assert_eq!(near("colour"), None);
        assert_eq!(near(&format!("memory{}", "_".repeat(LONGEST))), None);
    }
}
