//! The table of edges, which programs write.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use undercurrent_ebpf::abi::peers::{Edge, End, OTHERS};

use super::totals::Totals;
use crate::{kernel::maps::Words, telemetry::Scale, workloads::Slot};

/// Words of an edge.
const WORDS: usize = size_of::<Edge>() / size_of::<u64>();
/// The indices of the words before the amounts, in the order of [`Edge`].
const CLAIMS: usize = 0;
const ENDED: usize = 1;
const READY: usize = 2;
const END: usize = 3;
const PEER: usize = 4;
const AMOUNTS: usize = 6;
/// The time after which the entry of an edge without transactions is freed. The totals of the edge stay.
const IDLE: Duration = Duration::from_secs(600);
/// Readings between the end of an edge and the use of its entry by another: a program may still add to it.
const REST: u64 = 2;

/// The entries of the table.
pub struct Table {
    words: Words,
    scale: Scale,
    /// The state of each entry since the last reading.
    entries: Vec<State>,
    /// Number of readings.
    readings: u64,
}

/// The state of an entry.
enum State {
    Free,
    /// A program has claimed the entry, and its key is not complete.
    Claimed,
    Used(Used),
}

/// An entry with an edge.
struct Used {
    /// The totals at the last reading.
    totals: Totals,
    /// The time of the last growth.
    grown: Instant,
    /// The reading that frees the entry.
    freed_at: Option<u64>,
    /// True if the totals belong to a workload that has ended.
    is_forgotten: bool,
}

/// The growth of an edge since the last reading.
pub struct Growth {
    /// The end of the workload.
    pub end: End,
    /// The other end; see [`Edge::peer`].
    pub peer: [u64; 2],
    /// The growth.
    pub totals: Totals,
}

impl Table {
    /// Wraps the words of the map.
    pub fn new(words: Words, scale: Scale) -> Self {
        let entries = words.count() / WORDS - OTHERS;
        Self { words, scale, entries: (0..entries).map(|_| State::Free).collect(), readings: 0 }
    }

    /// Returns the totals of the connections that found no free entry, by role.
    pub fn others(&self) -> [Totals; OTHERS] {
        [0, 1].map(|role| self.totals(self.entries.len() + role))
    }

    fn edge(&self, index: usize) -> &[AtomicU64] {
        self.words.slice(index * WORDS..(index + 1) * WORDS)
    }

    fn totals(&self, index: usize) -> Totals {
        Totals::of(self.edge(index)[AMOUNTS..].iter().map(|word| word.load(Ordering::Relaxed)), self.scale)
    }

    /// Calls `visit` with the growth of each edge since the last reading, and frees the entries of idle edges.
    pub fn read(&mut self, now: Instant, mut visit: impl FnMut(Growth)) {
        self.readings += 1;
        for index in 0..self.entries.len() {
            let edge = self.edge(index);
            let [claims, ready] = [CLAIMS, READY].map(|word| edge[word].load(Ordering::Acquire));
            match &self.entries[index] {
                State::Used(_) => {}
                _ if ready != 0 => self.entries[index] = State::Used(Used::new(now, self.scale)),
                _ if claims == 0 => continue,
                State::Free => {
                    self.entries[index] = State::Claimed;
                    continue;
                }
                // The entry has no owner: two programs claimed it at the same time.
                State::Claimed => {
                    edge[CLAIMS].store(0, Ordering::Release);
                    self.entries[index] = State::Free;
                    continue;
                }
            }
            if let Some(growth) = self.grow(index, now) {
                visit(growth);
            }
        }
    }

    /// Returns the growth of an edge, and frees its entry in two steps after it was idle.
    fn grow(&mut self, index: usize, now: Instant) -> Option<Growth> {
        let totals = self.totals(index);
        let edge = self.words.slice(index * WORDS..(index + 1) * WORDS);
        let [end, peer, rest] = [END, PEER, PEER + 1].map(|word| edge[word].load(Ordering::Relaxed));
        let State::Used(used) = &mut self.entries[index] else { return None };
        let growth = totals.since(&used.totals);
        let is_forgotten = used.is_forgotten;
        if !growth.is_zero() {
            used.grown = now;
        }
        used.totals = totals;
        match used.freed_at {
            Some(reading) if reading <= self.readings => {
                edge[AMOUNTS..].iter().for_each(|word| word.store(0, Ordering::Relaxed));
                edge[ENDED].fetch_add(1, Ordering::Relaxed);
                edge[CLAIMS].store(0, Ordering::Release);
                self.entries[index] = State::Free;
            }
            Some(_) => {}
            None if now.saturating_duration_since(used.grown) >= IDLE => {
                edge[READY].store(0, Ordering::Release);
                used.freed_at = Some(self.readings + REST);
            }
            None => {}
        }
        (!growth.is_zero() && !is_forgotten).then_some(Growth { end: End(end), peer: [peer, rest], totals: growth })
    }

    /// Ends the edges from and to a workload.
    pub fn forget(&mut self, slot: Slot) {
        for index in 0..self.entries.len() {
            let edge = self.edge(index);
            let [ready, end, peer] = [READY, END, PEER].map(|word| edge[word].load(Ordering::Acquire));
            let end = End(end);
            if ready == 0 || end.slot() != slot && !(end.peer_is_local() && peer == u64::from(slot.0)) {
                continue;
            }
            edge[READY].store(0, Ordering::Release);
            let totals = self.totals(index);
            self.entries[index] = State::Used(Used {
                totals,
                grown: Instant::now(),
                freed_at: Some(self.readings + REST),
                is_forgotten: true,
            });
        }
    }
}

impl Used {
    fn new(now: Instant, scale: Scale) -> Self {
        Self { totals: Totals::zero(scale), grown: now, freed_at: None, is_forgotten: false }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use undercurrent_ebpf::abi::{
        peers::{Amount, first},
        transactions::Role,
    };

    use super::*;

    /// A table in a file, which is mapped as the kernel's map is.
    fn table() -> Table {
        let file: File = tempfile::tempfile().expect("a file");
        let count = (EDGES + OTHERS) * WORDS;
        file.set_len((count * size_of::<u64>()) as u64).expect("its length");
        Table::new(Words::map("EDGES", &file, count).expect("the mapping"), Scale::DEFAULT)
    }

    const SLOT: Slot = Slot(7);
    const EDGES: usize = 256;

    fn end() -> End {
        End::new(SLOT, Role::Server, 80, true)
    }

    /// Claims an entry and adds to it, as a program does.
    fn claim(table: &Table, peer: u64, transactions: u64) -> usize {
        let from = first(end(), [peer, 0]) as usize % EDGES;
        let index =
            (from..).map(|index| index % EDGES).find(|index| table.edge(*index)[CLAIMS].load(Ordering::Relaxed) == 0);
        let index = index.expect("a free entry");
        let edge = table.edge(index);
        edge[CLAIMS].store(1, Ordering::Relaxed);
        edge[END].store(end().0, Ordering::Relaxed);
        edge[PEER].store(peer, Ordering::Relaxed);
        edge[READY].store(edge[ENDED].load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        edge[AMOUNTS + Amount::Untimed as usize].fetch_add(transactions, Ordering::Relaxed);
        index
    }

    fn read(table: &mut Table, now: Instant) -> Vec<(u64, u64)> {
        let mut growths = Vec::new();
        table.read(now, |growth| growths.push((growth.peer[0], growth.totals.transactions())));
        growths
    }

    #[test]
    fn each_reading_returns_the_growth() {
        let (mut table, now) = (table(), Instant::now());
        let index = claim(&table, 3, 5);
        assert_eq!(read(&mut table, now), [(3, 5)]);
        assert_eq!(read(&mut table, now), []);
        table.edge(index)[AMOUNTS + Amount::Untimed as usize].fetch_add(2, Ordering::Relaxed);
        assert_eq!(read(&mut table, now), [(3, 2)]);
    }

    #[test]
    fn entries_of_idle_edges_are_free_after_their_last_growth_was_read() {
        let (mut table, now) = (table(), Instant::now());
        let index = claim(&table, 3, 5);
        assert_eq!(read(&mut table, now), [(3, 5)]);
        let later = now + IDLE;
        read(&mut table, later);
        assert_eq!(table.edge(index)[READY].load(Ordering::Relaxed), 0, "no program finds the edge");
        // A program that found it before adds to it.
        table.edge(index)[AMOUNTS + Amount::Untimed as usize].fetch_add(1, Ordering::Relaxed);
        assert_eq!(read(&mut table, later), [(3, 1)]);
        read(&mut table, later);
        assert_eq!(claim(&table, 3, 9), index);
        assert_eq!(table.edge(index)[ENDED].load(Ordering::Relaxed), 1, "another use of the entry");
    }

    #[test]
    fn edges_of_ended_workloads_are_dropped() {
        let (mut table, now) = (table(), Instant::now());
        claim(&table, 3, 5);
        table.forget(Slot(3));
        assert_eq!(read(&mut table, now), []);
        claim(&table, 4, 5);
        table.forget(Slot(9));
        assert_eq!(read(&mut table, now), [(4, 5)]);
        table.forget(SLOT);
        assert_eq!(read(&mut table, now), []);
        read(&mut table, now);
        let free = (0..EDGES).filter(|index| table.edge(*index)[CLAIMS].load(Ordering::Relaxed) == 0).count();
        assert_eq!(free, EDGES);
    }

    #[test]
    fn entries_without_an_owner_are_freed() {
        let (mut table, now) = (table(), Instant::now());
        table.edge(11)[CLAIMS].store(2, Ordering::Relaxed);
        read(&mut table, now);
        assert_eq!(table.edge(11)[CLAIMS].load(Ordering::Relaxed), 2, "a program may complete the key");
        read(&mut table, now);
        assert_eq!(table.edge(11)[CLAIMS].load(Ordering::Relaxed), 0);
    }
}
