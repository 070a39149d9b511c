//! Text that must fit on one line of a terminal: a line that wraps cannot be redrawn.

use ::console::{Term, measure_text_width};

/// The columns of the terminal, except the last one, where some terminals wrap.
pub fn columns() -> usize {
    let (_, columns) = Term::stderr().size();
    usize::from(columns).saturating_sub(1)
}

/// The width of the text in columns.
pub fn width(text: &str) -> usize {
    measure_text_width(text)
}

/// The text in at most `room` columns; the middle of a longer one is omitted, because paths differ at their ends.
pub fn shortened(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let Some(kept) = room.checked_sub(1) else {
        return String::new();
    };
    let start = within(text.chars(), kept / 2);
    let end = within(text.chars().rev(), kept - width(&start));
    format!("{start}…{}", end.chars().rev().collect::<String>())
}

/// As many letters as fit into `room` columns.
fn within(letters: impl Iterator<Item = char>, room: usize) -> String {
    let mut kept = String::new();
    for letter in letters {
        if width(&kept) + width(letter.encode_utf8(&mut [0; 4])) > room {
            break;
        }
        kept.push(letter);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_left_out_and_the_room_is_kept() {
        assert_eq!(shortened("data/a.bin", 10), "data/a.bin");
        assert_eq!(shortened("/pfs/local/home/me/a.bin", 11), "/pfs/…a.bin");
        assert_eq!(shortened("训练数据集", 6), "训…集");
        assert_eq!(shortened("abc", 0), "");
        for room in 0..30 {
            assert!(width(&shortened("/pfs/训练/数据/part-00000-of-00010", room)) <= room);
        }
    }
}
