//! The last few things used, bounded in bytes. Few enough that a scan finds them.

use std::sync::Arc;

pub(crate) struct Lru<K, V> {
    entries: Vec<(K, Arc<V>, usize)>,
    bytes: usize,
    bytes_max: usize,
}

impl<K: PartialEq, V> Lru<K, V> {
    pub fn new(bytes_max: usize) -> Self {
        Lru { entries: Vec::new(), bytes: 0, bytes_max }
    }

    pub fn get(&mut self, key: &K) -> Option<Arc<V>> {
        let at = self.entries.iter().rposition(|(k, ..)| k == key)?;
        let entry = self.entries.remove(at);
        let value = entry.1.clone();
        self.entries.push(entry);
        Some(value)
    }

    pub fn contains(&self, key: &K) -> bool {
        self.entries.iter().any(|(k, ..)| k == key)
    }

    pub fn remove(&mut self, key: &K) {
        self.entries.retain(|(k, _, b)| {
            let keep = k != key;
            self.bytes -= if keep { 0 } else { *b };
            keep
        });
    }

    /// All that is kept, the latest first.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().rev().map(|(k, v, _)| (k, &**v))
    }

    /// Keep `value`, which takes `bytes`; the least recently used go. The newest stays whatever its size.
    pub fn put(&mut self, key: K, value: Arc<V>, bytes: usize) {
        self.remove(&key);
        self.bytes += bytes;
        self.entries.push((key, value, bytes));
        let mut gone = 0;
        while self.bytes > self.bytes_max && gone + 1 < self.entries.len() {
            self.bytes -= self.entries[gone].2;
            gone += 1;
        }
        self.entries.drain(..gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_latest_within_its_bytes() {
        let mut lru = Lru::new(10);
        lru.put(1, Arc::new("a"), 4);
        lru.put(2, Arc::new("b"), 4);
        assert!(lru.get(&1).is_some());
        lru.put(3, Arc::new("c"), 4);
        assert!(lru.get(&2).is_none() && lru.get(&1).is_some() && lru.get(&3).is_some());
        lru.put(3, Arc::new("d"), 5);
        assert_eq!((lru.bytes, *lru.get(&3).unwrap()), (9, "d"));
        lru.put(4, Arc::new("e"), 50);
        assert_eq!((lru.entries.len(), lru.bytes), (1, 50));
    }
}
