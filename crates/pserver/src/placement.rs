//! Where data is placed: dense tensors as blocks distributed to the servers in turn, rows by a hash of their id.

/// Elements of a block, the unit of placement, locking and saving.
pub const BLOCK: u64 = 64 * 1024;

/// How a dense tensor is spread over the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    pub elements: u64,
    /// The server of block 0; the next block is on the next server.
    pub first: u32,
    pub servers: u32,
}

impl Layout {
    pub fn blocks(&self) -> u64 {
        self.elements.div_ceil(BLOCK)
    }

    /// The ranges of elements that a server holds, in order. Concatenated, they are its local values.
    pub fn ranges(&self, server: u32) -> impl Iterator<Item = std::ops::Range<u64>> + use<> {
        let (servers, elements, blocks) = (u64::from(self.servers), self.elements, self.blocks());
        let start = (u64::from(server) + servers - u64::from(self.first) % servers) % servers;
        (start..blocks)
            .step_by(self.servers as usize)
            .map(move |block| block * BLOCK..((block + 1) * BLOCK).min(elements))
    }

    /// The number of a server's block among all blocks.
    pub fn block_number(&self, server: u32, index: u64) -> u64 {
        let servers = u64::from(self.servers);
        let start = (u64::from(server) + servers - u64::from(self.first) % servers) % servers;
        start + index * servers
    }

    /// The local index of a block; `None` if another server holds it.
    pub fn local_index(&self, server: u32, number: u64) -> Option<u64> {
        let servers = u64::from(self.servers);
        let is_here = (u64::from(self.first) + number) % servers == u64::from(server);
        (is_here && number < self.blocks()).then_some(number / servers)
    }

    pub fn local_elements(&self, server: u32) -> u64 {
        let (servers, blocks) = (u64::from(self.servers), self.blocks());
        let start = self.block_number(server, 0);
        if start >= blocks {
            return 0;
        }
        let here = (blocks - start).div_ceil(servers);
        let has_last = self.block_number(server, here - 1) == blocks - 1;
        let missing = if has_last {
            blocks * BLOCK - self.elements
        } else {
            0
        };
        here * BLOCK - missing
    }
}

/// Spreads ids that are close together. Must never change, because checkpoints depend on it.
pub fn mix(id: u64) -> u64 {
    let mut x = id.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The server that holds a row.
pub fn server_of_row(id: u64, servers: u32) -> u32 {
    // The upper half chooses the server, so that the lower half stays uniform within a server.
    (((mix(id) >> 32) * u64::from(servers)) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_is_on_exactly_one_server() {
        for servers in 1..5 {
            for first in 0..servers {
                for elements in [0, 1, BLOCK, BLOCK + 1, 7 * BLOCK - 3] {
                    let layout = Layout {
                        elements,
                        first,
                        servers,
                    };
                    let mut all: Vec<_> = (0..servers).flat_map(|server| layout.ranges(server)).collect();
                    all.sort_by_key(|range| range.start);
                    let end = all.iter().fold(0, |at, range| {
                        assert_eq!(range.start, at);
                        range.end
                    });
                    assert_eq!(end, elements);
                    for server in 0..servers {
                        for (index, range) in layout.ranges(server).enumerate() {
                            let number = layout.block_number(server, index as u64);
                            assert_eq!(number * BLOCK, range.start);
                            assert_eq!(layout.local_index(server, number), Some(index as u64));
                        }
                    }
                    let local: u64 = (0..servers).map(|server| layout.local_elements(server)).sum();
                    assert_eq!(local, elements);
                }
            }
        }
    }

    #[test]
    fn neighbouring_rows_are_spread_evenly() {
        let mut counts = [0; 3];
        for id in 0..30_000 {
            counts[server_of_row(id, 3) as usize] += 1;
        }
        assert!(
            counts.iter().all(|count| (9_500..10_500).contains(count)),
            "{counts:?}"
        );
    }
}
