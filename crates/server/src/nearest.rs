//! Finds the known word that is closest to a misspelled one.

/// No known name is longer than this, even with typing errors.
const LONGEST: usize = 64;

/// The closest candidate, if one is close enough.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let most = if word.len() <= 3 { 1 } else { 2 };
    // The comparison costs the product of both lengths, and the word comes from an untrusted client.
    if word.len() > LONGEST {
        return None;
    }
    candidates
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The edit distance, ignoring case, `-` and `_`.
fn distance(left: &str, right: &str) -> usize {
    let plain = |word: &str| word.to_lowercase().replace(['-', '_'], "");
    strsim::damerau_levenshtein(&plain(left), &plain(right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_are_corrected_and_unrelated_words_are_not() {
        let words = ["parallelism", "memory", "cpu"];
        let near = |word| nearest(word, words.into_iter());
        assert_eq!(near("paralelism"), Some("parallelism"));
        assert_eq!(near("Memory"), Some("memory"));
        assert_eq!(near("cup"), Some("cpu"));
        assert_eq!(near("colour"), None);
        assert_eq!(near(&format!("memory{}", "_".repeat(LONGEST))), None);
    }
}
