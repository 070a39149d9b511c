//! Characters that control a terminal, or hide what a text says: none of them reaches a terminal from text that others wrote.
//!
//! The printers apply this to all text on a terminal. Pipes and files get the bytes unchanged.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The longest escape sequence that is waited for.
const LONGEST: usize = 64;

/// Whether a terminal acts on this character instead of showing it: C0, C1 and those that change the direction of text.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text with every such character as `\u001b`, which is also how JSON writes it. Lines and tabs stay.
pub fn escaped(text: &str) -> Cow<'_, str> {
    let stays = |c: char| matches!(c, '\n' | '\t') || !is_control(c);
    if text.chars().all(stays) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match stays(c) {
            true => shown.push(c),
            false => escape(c, &mut shown),
        }
    }
    Cow::Owned(shown)
}

/// The same for text that must stay on its line.
pub fn escaped_line(text: &str) -> String {
    escaped(text).replace('\n', "\\u000a").replace('\t', "\\u0009")
}

fn escape(c: char, shown: &mut String) {
    let _ = write!(shown, "\\u{:04x}", u32::from(c));
}

/// Filters the output of programs for a terminal: colours, `\r` and tabs pass, what moves the cursor is left out (progress bars write
/// it), everything else is escaped.
#[derive(Debug, Default)]
pub struct OutputFilter {
    /// The beginning of a sequence or of a character that is not complete.
    rest: Vec<u8>,
}

impl OutputFilter {
    /// Filters bytes that may end within a sequence.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let mut input = std::mem::take(&mut self.rest);
        input.extend_from_slice(bytes);
        let taken = filter(&input, false, out);
        self.rest = input.split_off(taken);
    }

    /// Appends what is left.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        filter(&std::mem::take(&mut self.rest), true, out);
    }

    /// Filters a whole line.
    pub fn line(bytes: &[u8], out: &mut Vec<u8>) {
        filter(bytes, true, out);
    }
}

/// Returns how many bytes were taken; `at_end` takes all.
fn filter(bytes: &[u8], at_end: bool, out: &mut Vec<u8>) -> usize {
    let mut at = 0;
    while let Some(&first) = bytes.get(at) {
        let rest = &bytes[at..];
        let found = match first {
            0x1b => sequence(rest),
            0x08 => Found::Cursor(1),
            _ => character(rest),
        };
        let length = match found {
            Found::Plain(length) => {
                out.extend_from_slice(&rest[..length]);
                length
            }
            Found::Cursor(length) => length,
            Found::Control(c) => {
                let mut shown = String::new();
                escape(c, &mut shown);
                out.extend_from_slice(shown.as_bytes());
                c.len_utf8()
            }
            Found::Incomplete if !at_end && rest.len() < LONGEST => return at,
            Found::Incomplete if first == 0x1b => {
                out.extend_from_slice(b"\\u001b");
                1
            }
            // Text in another encoding; without C1, which terminals of one byte per character act on.
            Found::Incomplete | Found::Invalid if first >= 0xa0 => {
                out.push(first);
                1
            }
            Found::Incomplete | Found::Invalid => {
                out.extend_from_slice(format!("\\x{first:02x}").as_bytes());
                1
            }
        };
        at += length;
    }
    at
}

/// What the bytes begin with.
enum Found {
    Plain(usize),
    Cursor(usize),
    Control(char),
    Incomplete,
    Invalid,
}

/// What follows an escape character: `ESC [ … m` is a colour, with other letters it moves the cursor or erases.
fn sequence(bytes: &[u8]) -> Found {
    const CURSOR: &[u8] = b"ABCDEFGHJKLMPSTX@`adefsu";
    match bytes.get(1) {
        None => return Found::Incomplete,
        Some(b'[') => {}
        Some(b'7' | b'8') => return Found::Cursor(2),
        Some(_) => return Found::Control('\x1b'),
    }
    let parameters = bytes[2..]
        .iter()
        .take_while(|byte| matches!(byte, 0x20..=0x3f))
        .count();
    let parameters = &bytes[2..2 + parameters];
    let length = parameters.len() + 3;
    let is_private = parameters
        .first()
        .is_some_and(|byte| !byte.is_ascii_digit() && *byte != b';');
    match bytes.get(length - 1) {
        None => Found::Incomplete,
        Some(b'm')
            if parameters
                .iter()
                .all(|byte| matches!(byte, b'0'..=b'9' | b';' | b':')) =>
        {
            Found::Plain(length)
        }
        Some(last) if !is_private && CURSOR.contains(last) => Found::Cursor(length),
        // Hiding and showing the cursor, wrapping lines.
        Some(b'h' | b'l') if matches!(parameters, b"?7" | b"?12" | b"?25") => Found::Cursor(length),
        Some(_) => Found::Control('\x1b'),
    }
}

fn character(bytes: &[u8]) -> Found {
    let plain = bytes
        .iter()
        .take_while(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t'))
        .count();
    if plain > 0 {
        return Found::Plain(plain);
    }
    let longest = &bytes[..bytes.len().min(4)];
    let valid = match std::str::from_utf8(longest) {
        Ok(text) => text,
        Err(error) if error.valid_up_to() > 0 => {
            std::str::from_utf8(&longest[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(error) if error.error_len().is_none() => return Found::Incomplete,
        Err(_) => return Found::Invalid,
    };
    match valid.chars().next() {
        Some(c) if is_control(c) => Found::Control(c),
        Some(c) => Found::Plain(c.len_utf8()),
        None => Found::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_on_a_terminal_has_no_controls() {
        assert!(matches!(escaped("tür\tzu 训练\n"), Cow::Borrowed(_)));
        assert_eq!(
            escaped("\x1b[2J\x1b]0;title\x07a\rb\u{9b}\u{202e}c\x7f"),
            "\\u001b[2J\\u001b]0;title\\u0007a\\u000db\\u009b\\u202ec\\u007f"
        );
        assert_eq!(escaped_line("a\nb\tc"), "a\\u000ab\\u0009c");
        for c in (0..=0x10_ffff).filter_map(char::from_u32) {
            let text = c.to_string();
            let shown = escaped(&text);
            assert!(
                shown.chars().all(|c| matches!(c, '\n' | '\t') || !is_control(c)),
                "{c:?}"
            );
            let json: String =
                serde_json::from_str(&escaped(&serde_json::to_string(&text).unwrap())).unwrap();
            assert_eq!(json, text, "JSON means the same");
        }
    }

    fn filtered(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        OutputFilter::line(bytes, &mut out);
        out
    }

    #[test]
    fn colours_of_programs_pass_and_the_cursor_stays() {
        let colours = b"\x1b[1;31mred\x1b[0m\r\x1b[38:5:1mx";
        assert_eq!(filtered(colours), colours);
        assert_eq!(
            filtered(b"\x1b[2K\x1b[1A\x1b[10;5H50%\x1b[?25l\x08\x1b7\x1b8"),
            b"50%"
        );
        assert_eq!(
            filtered(b"\x1b]0;title\x07\x1bc\x1b[6n\x1b[>4m\x00\x1b["),
            b"\\u001b]0;title\\u0007\\u001bc\\u001b[6n\\u001b[>4m\\u0000\\u001b["
        );
        let text = filtered("é训\u{9b}\u{202e}".as_bytes());
        assert_eq!(text, "é训\\u009b\\u202e".as_bytes());
        assert_eq!(filtered(b"\x9b31m\xff\xe8\xae"), b"\\x9b31m\xff\xe8\xae");
    }

    #[test]
    fn pieces_are_filtered_as_the_whole() {
        let whole = "a\x1b[31mé训\x1b[2K\x1b]0;x\x07\u{202e}\x1b[?25hend".as_bytes();
        for size in 1..whole.len() {
            let (mut filter, mut out) = (OutputFilter::default(), Vec::new());
            whole.chunks(size).for_each(|piece| filter.push(piece, &mut out));
            filter.end(&mut out);
            assert_eq!(out, filtered(whole), "in pieces of {size}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_output_is_harmless(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let shown = filtered(&bytes);
            let text = String::from_utf8_lossy(&shown);
            let colourless: Vec<&str> = text.split("\x1b[").collect();
            for (at, part) in colourless.iter().enumerate() {
                let is_colour = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';' || c == ':').starts_with('m');
                proptest::prop_assert!(at == 0 || is_colour);
                proptest::prop_assert!(part.chars().all(|c| matches!(c, '\n' | '\r' | '\t') || !is_control(c)));
            }
        }
    }
}
