//! Guesses which known word was meant, unless all are too different for a typing error.

/// The nearest word; `None` if no typing error of a few letters leads to one.
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known
        .into_iter()
        .filter(|word| *word != typed)
        .map(|word| (distance(typed, word), word))
        .filter(|(distance, word)| *distance <= slips(typed, word));
    near.min_by_key(|(distance, _)| *distance).map(|(_, word)| word)
}

/// Whether one may be a typing error for the other.
pub fn is_near(typed: &str, known: &str) -> bool {
    nearest(typed, [known]).is_some()
}

/// The number of inserted, omitted, changed or swapped letters; for a long prefix, letters not typed yet cost nothing.
fn distance(typed: &str, known: &str) -> usize {
    if typed.chars().count() > 2 && known.starts_with(typed) {
        return 1;
    }
    strsim::damerau_levenshtein(typed, known)
}

/// One error per three letters, and at least one.
fn slips(typed: &str, known: &str) -> usize {
    let shorter = typed.chars().count().min(known.chars().count());
    (shorter / 3).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 6] = ["submit", "top", "jobs", "kill", "completion", "logs"];

    #[test]
    fn a_typo_finds_the_nearest_word() {
        for (typed, meant) in [
            ("submt", "submit"),
            ("kil", "kill"),
            ("jbos", "jobs"),
            ("compl", "completion"),
        ] {
            assert_eq!(nearest(typed, KNOWN), Some(meant), "{typed}");
        }
    }

    #[test]
    fn a_far_word_is_not_guessed() {
        for typed in ["nope", "exit", "x", "jump"] {
            assert_eq!(nearest(typed, KNOWN), None, "{typed}");
        }
    }
}
