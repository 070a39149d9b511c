//! Rust text without its comments and literals, line for line, so that rules check code only.
//!
//! A small scanner, not a parser: it knows just enough to tell code from text.

/// The same text with the inside of comments, strings and characters blanked out.
///
/// Line breaks stay, so line numbers are those of the original.
pub fn code_only(text: &str) -> String {
    scan(text, Literals::Blanked)
}

/// The same text with only its comments blanked out.
pub fn without_comments(text: &str) -> String {
    scan(text, Literals::Kept)
}

fn scan(text: &str, literals: Literals) -> String {
    let mut scanner = Scanner {
        rest: text,
        out: String::with_capacity(text.len()),
        literals,
    };
    while scanner.step() {}
    scanner.out
}

/// Lines of `code` that contain `word` with no identifier character around it, counted from 1.
pub fn lines_with_word<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.lines()
        .enumerate()
        .filter(move |(_, line)| has_word(line, word))
        .map(|(index, _)| index + 1)
}

/// Whether `word` is a separate word in `line`: `sqlx` in `sqlx::Pool`, not in `mysqlx`.
pub fn has_word(line: &str, word: &str) -> bool {
    let ends_in_name = word.ends_with(is_name_char);
    line.match_indices(word).any(|(start, _)| {
        let continues_a_name = line[..start].ends_with(is_name_char);
        let is_continued = ends_in_name && line[start + word.len()..].starts_with(is_name_char);
        !continues_a_name && !is_continued
    })
}

fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// What happens to strings and characters.
#[derive(Clone, Copy)]
enum Literals {
    Blanked,
    Kept,
}

struct Scanner<'a> {
    rest: &'a str,
    out: String,
    literals: Literals,
}

impl Scanner<'_> {
    /// Consumes the next comment, literal or character; false at the end.
    fn step(&mut self) -> bool {
        let Some(first) = self.rest.chars().next() else {
            return false;
        };
        if self.rest.starts_with("//") {
            self.blank(self.rest.find('\n').unwrap_or(self.rest.len()));
        } else if self.rest.starts_with("/*") {
            self.blank(block_comment_length(self.rest));
        } else if let Some(length) = raw_string_length(self.rest).filter(|_| !self.inside_name()) {
            self.literal(length);
        } else if first == '"' {
            self.literal(string_length(self.rest));
        } else if let Some(length) = char_length(self.rest) {
            self.literal(length);
        } else {
            self.out.push(first);
            self.rest = &self.rest[first.len_utf8()..];
        }
        true
    }

    fn inside_name(&self) -> bool {
        self.out.chars().next_back().is_some_and(is_name_char)
    }

    fn literal(&mut self, length: usize) {
        match self.literals {
            Literals::Blanked => self.blank(length),
            Literals::Kept => {
                let (taken, rest) = self.rest.split_at(length);
                self.out.push_str(taken);
                self.rest = rest;
            }
        }
    }

    fn blank(&mut self, length: usize) {
        let (taken, rest) = self.rest.split_at(length);
        self.out
            .extend(taken.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        self.rest = rest;
    }
}

fn block_comment_length(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// `r"…"`, `r#"…"#`, `br"…"`, `cr"…"`: no escapes, ends at the quote with as many `#`.
fn raw_string_length(text: &str) -> Option<usize> {
    let marker = ["r", "br", "cr"].into_iter().find(|marker| {
        let after = text.strip_prefix(marker);
        after.is_some_and(|after| after.trim_start_matches('#').starts_with('"'))
    })?;
    let hashes = text[marker.len()..].len() - text[marker.len()..].trim_start_matches('#').len();
    let body = marker.len() + hashes + 1;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(
        text[body..]
            .find(&end)
            .map_or(text.len(), |found| body + found + end.len()),
    )
}

fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// A character literal; `None` for a lifetime.
fn char_length(text: &str) -> Option<usize> {
    let inside = text.strip_prefix('\'')?;
    let first = inside.chars().next()?;
    if first == '\\' {
        let after_escape = 1 + inside[1..].chars().next()?.len_utf8();
        return inside[after_escape..]
            .find('\'')
            .map(|end| 1 + after_escape + end + 1);
    }
    inside[first.len_utf8()..]
        .starts_with('\'')
        .then_some(1 + first.len_utf8() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_blanked_and_lines_stay() {
        let code = code_only("a // todo\n/* x\n/* y */ z */b\n");
        assert_eq!(code.lines().count(), 3);
        assert!(!code.contains("todo") && !code.contains('z'));
        assert!(code.contains('a') && code.contains('b'));
    }

    #[test]
    fn strings_of_every_kind_are_blanked() {
        for literal in [
            r#""x\"x""#,
            "r\"x\"",
            "r##\"x\"#x\"##",
            "b\"x\"",
            "br#\"x\"#",
            "c\"x\"",
        ] {
            let code = code_only(&format!("f({literal});g()"));
            assert!(!code.contains('x'), "{literal}: {code}");
            assert!(code.ends_with(";g()"), "{literal}: {code}");
        }
    }

    #[test]
    fn literals_can_be_kept() {
        let text = "f(\"a // b\", 'c') // d";
        assert_eq!(without_comments(text).trim_end(), "f(\"a // b\", 'c')");
    }

    #[test]
    fn a_quote_character_does_not_open_a_string() {
        assert!(code_only("split('\"').todo()").contains("todo"));
        assert!(code_only(r"split('\'').todo()").contains("todo"));
        assert!(code_only(r"f('\u{1F600}').todo()").contains("todo"));
    }

    #[test]
    fn a_lifetime_is_not_a_character() {
        assert_eq!(code_only("fn f<'a>(x: &'a str)"), "fn f<'a>(x: &'a str)");
    }

    #[test]
    fn an_unclosed_string_ends_with_the_text() {
        assert_eq!(code_only("f(\"abc").trim_end(), "f(");
    }

    #[test]
    fn a_word_stands_on_its_own() {
        assert!(has_word("use sqlx::Pool;", "sqlx"));
        assert!(!has_word("use mysqlx::Pool;", "sqlx"));
        assert!(!has_word("let sqlx_pool = 1;", "sqlx"));
        assert!(has_word("println!(x)", "println!"));
        assert!(!has_word("eprintln!(x)", "println!"));
    }
}
