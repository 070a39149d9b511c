//! Many records in one buffer, for bindings that do not handle records one by one.

/// Records laid end to end; record `i` is `data[offsets[i]..offsets[i + 1]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    data: Vec<u8>,
    offsets: Vec<u64>,
}

impl Batch {
    pub fn new() -> Self {
        Self {
            data: Vec::new(),
            offsets: vec![0],
        }
    }

    /// Drops the records, keeps the memory.
    pub fn clear(&mut self) {
        self.data.clear();
        self.offsets.truncate(1);
    }

    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// `len() + 1` offsets into [`Batch::data`], the first one 0.
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// Record `i`. Panics if there is no such record.
    pub fn get(&self, i: usize) -> &[u8] {
        &self.data[self.offsets[i] as usize..self.offsets[i + 1] as usize]
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let pairs = self.offsets.windows(2);
        pairs.map(|pair| &self.data[pair[0] as usize..pair[1] as usize])
    }

    pub fn push(&mut self, record: &[u8]) {
        self.data.extend_from_slice(record);
        self.offsets.push(self.data.len() as u64);
    }

    /// Adds a record of `len` bytes that `fill` writes in place; a failure leaves the batch unchanged.
    pub(crate) fn push_with<E>(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = self.data.len();
        self.data.resize(start + len, 0);
        if let Err(error) = fill(&mut self.data[start..]) {
            self.data.truncate(start);
            return Err(error);
        }
        self.offsets.push(self.data.len() as u64);
        Ok(())
    }

    /// Buffer and offsets, for a binding that takes them over.
    pub fn into_parts(self) -> (Vec<u8>, Vec<u64>) {
        (self.data, self.offsets)
    }

    /// Adds the records `from..to` of a chunk.
    pub(crate) fn extend(&mut self, records: crate::chunk::Records<'_>, from: usize, to: usize) {
        if from == to {
            return;
        }
        let bytes = records.bounds(to - 1).end - records.bounds(from).start;
        self.data.reserve(bytes);
        self.offsets.reserve(to - from);
        for i in from..to {
            self.push(records.get(i));
        }
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}
