//! Admission of lookups. The bounds apply per local user, so that lookups of one user do not displace lookups of other
//! users or of the system.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::lookup::Lookup;
use crate::Uid;

/// The bounds of one owner's lookups.
#[derive(Clone, Copy)]
struct Bounds {
    /// The maximum number of open lookups. A lookup is open from its submission until its result is taken.
    open: usize,
    /// The maximum number of waiting lookups.
    waiting: usize,
}

/// One waiting lookup for each workload with a slot.
const SYSTEM: Bounds = Bounds { open: 1024, waiting: 4096 };
const USER: Bounds = Bounds { open: 32, waiting: 128 };
/// The maximum number of users with lookups at a time.
const USERS: usize = 64;

/// The outcome of an admission.
pub(super) enum Admission {
    /// The lookup is open until the permit is dropped.
    Open(Lookup, OwnedSemaphorePermit),
    /// The lookup waits.
    Waiting,
    /// The owner has too many waiting lookups.
    Refused,
}

/// The lookups of the system and of all users.
pub(super) struct Admissions {
    system: OwnerQueue,
    users: HashMap<Uid, OwnerQueue>,
}

struct OwnerQueue {
    bounds: Bounds,
    open: Arc<Semaphore>,
    waiting: VecDeque<Lookup>,
}

impl Admissions {
    pub(super) fn new() -> Self {
        Self { system: OwnerQueue::new(SYSTEM), users: HashMap::new() }
    }

    pub(super) fn admit(&mut self, lookup: Lookup) -> Admission {
        match self.room(lookup.user) {
            Some(room) => room.admit(lookup),
            None => Admission::Refused,
        }
    }

    /// Removes and returns the first waiting lookup of an owner. The caller must have completed a lookup of the owner.
    pub(super) fn next(&mut self, user: Option<Uid>) -> Option<Lookup> {
        let next = self.room(user).and_then(|room| room.waiting.pop_front());
        self.users.retain(|_, room| !room.is_empty());
        next
    }

    fn room(&mut self, user: Option<Uid>) -> Option<&mut OwnerQueue> {
        let Some(user) = user else { return Some(&mut self.system) };
        if self.users.len() >= USERS && !self.users.contains_key(&user) {
            return None;
        }
        Some(self.users.entry(user).or_insert_with(|| OwnerQueue::new(USER)))
    }
}

impl OwnerQueue {
    fn new(bounds: Bounds) -> Self {
        Self { bounds, open: Arc::new(Semaphore::new(bounds.open)), waiting: VecDeque::new() }
    }

    fn admit(&mut self, lookup: Lookup) -> Admission {
        if let Ok(permit) = Arc::clone(&self.open).try_acquire_owned() {
            return Admission::Open(lookup, permit);
        }
        if self.waiting.len() >= self.bounds.waiting {
            return Admission::Refused;
        }
        self.waiting.push_back(lookup);
        Admission::Waiting
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.open.available_permits() == self.bounds.open
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ContainerId;

    fn lookup(user: Option<u32>) -> Lookup {
        Lookup { container: ContainerId("x".to_owned()), runtime: None, pod: None, user: user.map(Uid) }
    }

    /// Admits lookups of an owner until one is rejected. Returns the permits of the open ones and the number of waiting
    /// ones.
    fn fill(rooms: &mut Admissions, user: Option<u32>) -> (Vec<OwnedSemaphorePermit>, usize) {
        let (mut open, mut waiting) = (Vec::new(), 0);
        loop {
            match rooms.admit(lookup(user)) {
                Admission::Open(_, permit) => open.push(permit),
                Admission::Waiting => waiting += 1,
                Admission::Refused => return (open, waiting),
            }
        }
    }

    #[test]
    fn each_user_and_the_system_have_their_own_bounds() {
        let mut rooms = Admissions::new();
        let bounds = |(open, waiting): &(Vec<OwnedSemaphorePermit>, usize)| (open.len(), *waiting);
        let user = fill(&mut rooms, Some(7));
        assert_eq!(bounds(&user), (USER.open, USER.waiting));
        let other = fill(&mut rooms, Some(8));
        assert_eq!(bounds(&other), (USER.open, USER.waiting));
        let system = fill(&mut rooms, None);
        assert_eq!(bounds(&system), (SYSTEM.open, SYSTEM.waiting));
        drop(user);
        assert_eq!(rooms.next(Some(Uid(7))), Some(lookup(Some(7))));
        assert!(matches!(rooms.admit(lookup(Some(7))), Admission::Open(..)));
        assert!(matches!(rooms.admit(lookup(Some(8))), Admission::Refused));
    }

    #[test]
    fn the_number_of_users_is_bounded() {
        let mut rooms = Admissions::new();
        let users = u32::try_from(USERS).expect("small");
        let mut open: Vec<Admission> = (1..=users).map(|user| rooms.admit(lookup(Some(user)))).collect();
        assert!(matches!(rooms.admit(lookup(Some(users + 1))), Admission::Refused));
        assert!(matches!(rooms.admit(lookup(None)), Admission::Open(..)));
        drop(open.pop());
        assert_eq!(rooms.next(Some(Uid(users))), None);
        assert!(matches!(rooms.admit(lookup(Some(users + 1))), Admission::Open(..)));
    }
}
