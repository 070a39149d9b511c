//! Just enough of Python's pickle for a dictionary of names to bytes.
//!
//! Writes protocol 4; reads such a dictionary as `pickle.dumps` writes it in protocols 2 to 5. It executes nothing:
//! every operation that could create an object is refused.

/// A string or bytes inside a dictionary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Bytes(Vec<u8>),
}

impl Value {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

const PROTO: u8 = 0x80;
const FRAME: u8 = 0x95;
const MEMOIZE: u8 = 0x94;
const EMPTY_DICT: u8 = b'}';
const MARK: u8 = b'(';
const SETITEM: u8 = b's';
const SETITEMS: u8 = b'u';
const STOP: u8 = b'.';
const SHORT_BINUNICODE: u8 = 0x8c;
const BINUNICODE: u8 = b'X';
const BINUNICODE8: u8 = 0x8d;
const SHORT_BINBYTES: u8 = b'C';
const BINBYTES: u8 = b'B';
const BINBYTES8: u8 = 0x8e;
const BINPUT: u8 = b'q';
const LONG_BINPUT: u8 = b'r';
const BINGET: u8 = b'h';
const LONG_BINGET: u8 = b'j';

/// A dictionary as Python pickles it.
pub(crate) fn dump<'a>(items: impl Iterator<Item = (&'a str, &'a Value)>, out: &mut Vec<u8>) {
    out.clear();
    out.extend([PROTO, 4, EMPTY_DICT, MARK]);
    for (name, value) in items {
        put(out, [SHORT_BINUNICODE, BINUNICODE, BINUNICODE8], name.as_bytes());
        match value {
            Value::Text(text) => put(out, [SHORT_BINUNICODE, BINUNICODE, BINUNICODE8], text.as_bytes()),
            Value::Bytes(bytes) => put(out, [SHORT_BINBYTES, BINBYTES, BINBYTES8], bytes),
        }
    }
    out.extend([SETITEMS, STOP]);
}

/// Bytes after the opcode for their length: one byte, four or eight.
fn put(out: &mut Vec<u8>, operations: [u8; 3], bytes: &[u8]) {
    let len = bytes.len() as u64;
    if let Ok(short) = u8::try_from(len) {
        out.extend([operations[0], short]);
    } else if let Ok(medium) = u32::try_from(len) {
        out.push(operations[1]);
        out.extend(medium.to_le_bytes());
    } else {
        out.push(operations[2]);
        out.extend(len.to_le_bytes());
    }
    out.extend_from_slice(bytes);
}

/// The dictionary in a pickle, in its order.
pub(crate) fn load(pickle: &[u8]) -> Result<Vec<(String, Value)>, String> {
    let mut machine = Machine {
        rest: pickle,
        stack: Vec::new(),
        memo: Vec::new(),
    };
    machine
        .run()
        .map_err(|problem| format!("is not a pickled dictionary of names and bytes: {problem}"))
}

#[derive(Debug, Clone)]
enum Item {
    Value(Value),
    Dict(Vec<(String, Value)>),
    Mark,
}

struct Machine<'a> {
    rest: &'a [u8],
    stack: Vec<Item>,
    memo: Vec<(u32, Value)>,
}

impl Machine<'_> {
    fn run(&mut self) -> Result<Vec<(String, Value)>, String> {
        loop {
            let operation = self.take(1)?[0];
            match operation {
                PROTO => drop(self.take(1)?),
                FRAME => drop(self.take(8)?),
                EMPTY_DICT => self.stack.push(Item::Dict(Vec::new())),
                MARK => self.stack.push(Item::Mark),
                SHORT_BINUNICODE => self.text(1)?,
                BINUNICODE => self.text(4)?,
                BINUNICODE8 => self.text(8)?,
                SHORT_BINBYTES => self.bytes(1)?,
                BINBYTES => self.bytes(4)?,
                BINBYTES8 => self.bytes(8)?,
                MEMOIZE => self.remember(self.memo_len()),
                BINPUT => {
                    let at = self.number(1)?;
                    self.remember(at as u32);
                }
                LONG_BINPUT => {
                    let at = self.number(4)?;
                    self.remember(at as u32);
                }
                BINGET => self.recall(1)?,
                LONG_BINGET => self.recall(4)?,
                SETITEM => self.set_items(self.stack.len().saturating_sub(2))?,
                SETITEMS => self.set_marked()?,
                STOP => return self.result(),
                other => return Err(format!("it contains something else (operation {other:#04x})")),
            }
        }
    }

    fn take(&mut self, len: usize) -> Result<&[u8], String> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or("it is truncated")?;
        self.rest = rest;
        Ok(taken)
    }

    fn number(&mut self, width: usize) -> Result<u64, String> {
        let mut bytes = [0; 8];
        bytes[..width].copy_from_slice(self.take(width)?);
        Ok(u64::from_le_bytes(bytes))
    }

    fn counted(&mut self, width: usize) -> Result<Vec<u8>, String> {
        let len = usize::try_from(self.number(width)?).map_err(|_| "it is truncated")?;
        Ok(self.take(len)?.to_vec())
    }

    fn text(&mut self, width: usize) -> Result<(), String> {
        let text = String::from_utf8(self.counted(width)?).map_err(|_| "a string in it is not UTF-8")?;
        self.stack.push(Item::Value(Value::Text(text)));
        Ok(())
    }

    fn bytes(&mut self, width: usize) -> Result<(), String> {
        let bytes = self.counted(width)?;
        self.stack.push(Item::Value(Value::Bytes(bytes)));
        Ok(())
    }

    fn memo_len(&self) -> u32 {
        self.memo.len() as u32
    }

    /// The dictionary itself is memoized too, but nothing in it can refer back to it: an empty text represents it.
    fn remember(&mut self, at: u32) {
        let value = match self.stack.last() {
            Some(Item::Value(value)) => value.clone(),
            _ => Value::Text(String::new()),
        };
        self.memo.push((at, value));
    }

    fn recall(&mut self, width: usize) -> Result<(), String> {
        let at = self.number(width)?;
        let found = self.memo.iter().rev().find(|(known, _)| u64::from(*known) == at);
        let (_, value) = found.ok_or("it refers to a missing object")?;
        self.stack.push(Item::Value(value.clone()));
        Ok(())
    }

    fn set_marked(&mut self) -> Result<(), String> {
        let mark = self.stack.iter().rposition(|item| matches!(item, Item::Mark));
        let mark = mark.ok_or("it is out of order")?;
        self.stack.remove(mark);
        self.set_items(mark)
    }

    /// Moves name and value pairs from `from` on into the dictionary below them.
    fn set_items(&mut self, from: usize) -> Result<(), String> {
        let mut items = self.stack.split_off(from).into_iter();
        let Some(Item::Dict(dict)) = self.stack.last_mut() else {
            return Err("it is out of order".to_owned());
        };
        while let Some(name) = items.next() {
            match (name, items.next()) {
                (Item::Value(Value::Text(name)), Some(Item::Value(value))) => dict.push((name, value)),
                _ => {
                    return Err(
                        "a key in it is not a string, or its value is neither a string nor bytes".to_owned(),
                    );
                }
            }
        }
        Ok(())
    }

    fn result(&mut self) -> Result<Vec<(String, Value)>, String> {
        match (self.stack.pop(), self.stack.is_empty(), self.rest.is_empty()) {
            (Some(Item::Dict(dict)), true, true) => Ok(dict),
            _ => Err("it contains something else".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<(String, Value)> {
        vec![
            ("__key__".to_owned(), Value::Text("0007".to_owned())),
            ("jpg".to_owned(), Value::Bytes(vec![0xff; 300])),
            ("cls".to_owned(), Value::Bytes(b"3".to_vec())),
        ]
    }

    #[test]
    fn dumped_values_are_loaded() {
        let mut out = Vec::new();
        dump(
            sample().iter().map(|(name, value)| (name.as_str(), value)),
            &mut out,
        );
        assert_eq!(load(&out).unwrap(), sample());
    }

    #[test]
    fn pickles_of_python_are_read() {
        // pickle.dumps({"__key__": "a", "cls": b"1", "txt": "a"}, 4)
        let protocol_4 = b"\x80\x04\x95\x22\0\0\0\0\0\0\0}\x94(\x8c\x07__key__\x94\x8c\x01a\x94\x8c\x03cls\x94C\x011\x94\x8c\x03txt\x94h\x02u.";
        let expected = vec![
            ("__key__".to_owned(), Value::Text("a".to_owned())),
            ("cls".to_owned(), Value::Bytes(b"1".to_vec())),
            ("txt".to_owned(), Value::Text("a".to_owned())),
        ];
        assert_eq!(load(protocol_4).unwrap(), expected);
        // pickle.dumps({"a": "b"}, 2)
        let protocol_2 = b"\x80\x02}q\x00X\x01\x00\x00\x00aq\x01X\x01\x00\x00\x00bq\x02s.";
        assert_eq!(
            load(protocol_2).unwrap(),
            [("a".to_owned(), Value::Text("b".to_owned()))]
        );
    }

    #[test]
    fn nothing_is_ever_run() {
        // pickle.dumps(os.system, 0) and other things that are not a dictionary
        for pickle in [
            &b"cposix\nsystem\np0\n."[..],
            b"\x80\x04K\x05.",
            b"",
            b"}",
            b"u.",
            b"(u.",
            b"}s.",
            b"\x80\x04}}.",
        ] {
            assert!(load(pickle).is_err(), "{pickle:?}");
        }
    }

    #[test]
    fn no_cut_and_no_flipped_bit_panics() {
        let mut out = Vec::new();
        dump(
            sample().iter().map(|(name, value)| (name.as_str(), value)),
            &mut out,
        );
        for at in 0..out.len() {
            assert!(load(&out[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut bad = out.clone();
                bad[at] ^= 1 << bit;
                let _ = load(&bad);
            }
        }
    }
}
