//! A WebDataset sample: the files of an archive that share a name up to the first dot.

use crate::pickle::{self, Value};

const KEY: &str = "__key__";

/// Files by extension, in the archive's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) key: String,
    pub(crate) files: Vec<(String, Value)>,
}

impl Sample {
    pub(crate) fn new(key: &str) -> Self {
        Self {
            key: key.to_owned(),
            files: Vec::new(),
        }
    }

    /// Splits `dir/0007.seg.png` into `dir/0007` and `seg.png`.
    pub(crate) fn split_name(path: &str) -> Option<(&str, &str)> {
        let name_at = path.rfind('/').map_or(0, |slash| slash + 1);
        let dot = path[name_at..].find('.')? + name_at;
        let (key, extension) = (&path[..dot], &path[dot + 1..]);
        (dot > name_at && !extension.is_empty()).then_some((key, extension))
    }

    pub(crate) fn add(&mut self, extension: &str, bytes: Vec<u8>) -> Result<(), String> {
        if extension == KEY || self.files.iter().any(|(known, _)| known == extension) {
            return Err(format!("contains `{}.{extension}` twice", self.key));
        }
        self.files.push((extension.to_owned(), Value::Bytes(bytes)));
        Ok(())
    }

    pub(crate) fn file(&self, extension: &str) -> Option<&[u8]> {
        let found = self.files.iter().find(|(known, _)| known == extension);
        found.map(|(_, value)| value.as_bytes())
    }

    /// The dictionary that Python's `webdataset` would yield, pickled.
    pub(crate) fn to_record(&self, out: &mut Vec<u8>) {
        let key = (KEY, Value::Text(self.key.clone()));
        let files = self.files.iter().map(|(name, value)| (name.as_str(), value));
        pickle::dump(std::iter::once((key.0, &key.1)).chain(files), out);
    }

    pub(crate) fn of_record(record: &[u8]) -> Result<Self, String> {
        let mut files = pickle::load(record)?;
        let at = files.iter().position(|(name, _)| name == KEY);
        let at = at.ok_or_else(|| format!("is a dictionary without `{KEY}`, so it is not a sample"))?;
        let key = match files.remove(at).1 {
            Value::Text(key) if !key.is_empty() => key,
            _ => return Err(format!("has a `{KEY}` that is not a name")),
        };
        // WebDataset records where a sample came from; that is not one of its files.
        files.retain(|(name, _)| name != "__url__" && name != "__local_path__");
        Ok(Self { key, files })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_split_at_the_first_dot_of_its_last_part() {
        assert_eq!(
            Sample::split_name("a.b/0007.seg.png"),
            Some(("a.b/0007", "seg.png"))
        );
        assert_eq!(Sample::split_name("README"), None);
        assert_eq!(Sample::split_name("a/.hidden"), None);
        assert_eq!(Sample::split_name("a."), None);
    }

    #[test]
    fn a_sample_comes_back_from_its_record() {
        let mut sample = Sample::new("0007");
        sample.add("jpg", vec![1, 2, 3]).unwrap();
        sample.add("cls", b"1".to_vec()).unwrap();
        assert!(sample.add("cls", Vec::new()).is_err());
        let mut record = Vec::new();
        sample.to_record(&mut record);
        assert_eq!(Sample::of_record(&record).unwrap(), sample);
        assert!(Sample::of_record(b"text").is_err());
    }
}
