//! A cache bounded by bytes, with second-chance eviction.

use std::collections::{HashMap, VecDeque};

/// Values by number; the newest value always stays, even if it alone exceeds the bound.
pub(crate) struct Cache<V> {
    slots: HashMap<usize, Slot<V>>,
    turns: VecDeque<usize>,
    used: usize,
    bound: usize,
}

struct Slot<V> {
    value: V,
    cost: usize,
    touched: bool,
}

impl<V> Cache<V> {
    pub(crate) fn new(bound: usize) -> Self {
        Self {
            slots: HashMap::new(),
            turns: VecDeque::new(),
            used: 0,
            bound,
        }
    }

    pub(crate) fn get(&mut self, key: usize) -> Option<&V> {
        let slot = self.slots.get_mut(&key)?;
        slot.touched = true;
        Some(&slot.value)
    }

    /// Inserts a value that is not in the cache yet.
    pub(crate) fn insert(&mut self, key: usize, value: V, cost: usize) {
        self.make_room(cost);
        let slot = Slot {
            value,
            cost,
            touched: false,
        };
        let before = self.slots.insert(key, slot);
        debug_assert!(before.is_none(), "callers look before they insert");
        self.turns.push_back(key);
        self.used += cost;
    }

    fn make_room(&mut self, cost: usize) {
        while self.used + cost > self.bound
            && let Some(key) = self.turns.pop_front()
        {
            let slot = self.slots.get_mut(&key).expect("every turn has its slot");
            if std::mem::take(&mut slot.touched) {
                self.turns.push_back(key);
            } else {
                self.used -= slot.cost;
                self.slots.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept<V>(cache: &Cache<V>) -> Vec<usize> {
        (0..4).filter(|key| cache.slots.contains_key(key)).collect()
    }

    #[test]
    fn recently_used_values_are_kept() {
        let mut cache = Cache::new(30);
        for key in 0..3 {
            cache.insert(key, key, 10);
        }
        cache.get(0);
        cache.insert(3, 3, 10);
        assert_eq!(kept(&cache), [0, 2, 3]);
    }

    #[test]
    fn a_value_larger_than_the_bound_is_kept_alone() {
        let mut cache = Cache::new(30);
        cache.insert(0, 'a', 10);
        cache.insert(1, 'b', 100);
        assert_eq!(kept(&cache), [1]);
        cache.insert(2, 'c', 10);
        cache.insert(3, 'd', 10);
        assert_eq!(kept(&cache), [2, 3]);
    }
}
