//! The assignment of slices of equal pods to domains, from how many pods fit into each.
//!
//! Whole slices are counted: a domain holds as many as its room is a multiple of their size. They are spread over few
//! domains, level by level, or evenly over as many as the group asks for. At most one slice is left that is not whole,
//! for which the rest of a domain is enough; then this is exact.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::rooms::Rooms;
use super::slices::{self, Slice};
use super::tree::DomainId;
use super::{Target, exclusive, split};

/// What the domains of slices have to meet.
pub(super) struct Rules<'t> {
    pub(super) target: &'t Target,
    closed: &'t BTreeSet<DomainId>,
    /// The depth of the domains of slices.
    depth: usize,
    size: i64,
    /// Whether each slice has a domain of its own.
    alone: bool,
    /// The domains of slices that members use.
    held: BTreeSet<DomainId>,
    spread: Option<SpreadRule>,
}

/// Over how many domains of a depth slices are spread.
struct SpreadRule {
    depth: usize,
    min: usize,
    max: usize,
    /// How many members are in those that are used.
    used: BTreeMap<DomainId, i64>,
}

/// Which slices are placed where.
#[derive(Debug, Default)]
pub(super) struct Assignment {
    /// The slice, how many of its pods, and the domain.
    pub(super) parts: Vec<(usize, usize, DomainId)>,
    /// How many pods that are.
    pub(super) pods: i64,
    /// How many more pods would fit in whole slices.
    pub(super) slack: i64,
    /// Whether no more could be placed.
    pub(super) is_exact: bool,
}

/// What is left of the domains during an assignment.
struct Left<'r> {
    rules: &'r Rules<'r>,
    rooms: BTreeMap<DomainId, i64>,
    /// Domains that a slice has for itself.
    occupied: BTreeSet<DomainId>,
    /// How many pods are in each domain of the spread.
    spread: BTreeMap<DomainId, i64>,
}

impl<'t> Rules<'t> {
    pub(super) fn of(target: &'t Target, closed: &'t BTreeSet<DomainId>) -> Self {
        let (wanted, tree) = (&target.topology.wanted, &target.tree);
        let depth = slices::unit_depth(target);
        let spread = wanted.spread.map(|spread| {
            let mut used = BTreeMap::new();
            for domain in target.topology.held.iter().filter_map(|node| tree.domain_at(*node, spread.level + 1)) {
                *used.entry(domain).or_default() += 1;
            }
            SpreadRule { depth: spread.level + 1, min: spread.min as usize, max: spread.max as usize, used }
        });
        Self {
            target,
            closed,
            depth,
            size: slices::unit_size(target) as i64,
            alone: wanted.slices.is_some_and(|slices| wanted.exclusive == Some(slices.level)),
            held: slices::used_domains(tree, &target.topology.held, depth),
            spread,
        }
    }

    /// The domains of slices inside of a domain that are open.
    fn units(&self, inside: DomainId) -> impl Iterator<Item = DomainId> {
        let units = self.target.tree.within_at_depth(inside, self.depth).into_iter();
        units.filter(|domain| !exclusive::is_closed(&self.target.tree, self.closed, *domain))
    }

    /// How many further slices fit into each of them.
    pub(super) fn capacities<'a>(
        &'a self,
        rooms: &'a Rooms,
        inside: DomainId,
    ) -> impl Iterator<Item = (DomainId, i64)> + 'a {
        self.units(inside).map(|domain| {
            let slices = rooms.room(domain) / self.size;
            let own = i64::from(slices > 0 && !self.held.contains(&domain));
            (domain, if self.alone { own } else { slices })
        })
    }

    /// How many domains of the spread are used or have room for a slice.
    pub(super) fn spread_over(&self, rooms: &Rooms, inside: DomainId) -> usize {
        let Some(spread) = &self.spread else { return 0 };
        let with_room = self.capacities(rooms, inside).filter(|(_, slices)| *slices > 0);
        let mut domains: BTreeSet<DomainId> =
            with_room.filter_map(|(domain, _)| self.target.tree.ancestor_at(domain, spread.depth)).collect();
        domains.extend(spread.used.keys());
        domains.len()
    }

    /// Those in which a further slice may be, beside slices in these domains.
    pub(super) fn open_units(&self, inside: DomainId, used: impl Iterator<Item = DomainId>) -> Vec<DomainId> {
        let mut occupied = self.held.clone();
        occupied.extend(used);
        let is_free = |domain: &DomainId| !self.alone || !occupied.contains(domain);
        let Some(spread) = &self.spread else { return self.units(inside).filter(is_free).collect() };
        let around = |domain: DomainId| self.target.tree.ancestor_at(domain, spread.depth);
        let of_spread: BTreeSet<DomainId> =
            occupied.iter().filter_map(|domain| around(*domain)).chain(spread.used.keys().copied()).collect();
        let count = of_spread.len();
        let units = self.units(inside).filter(is_free);
        let may_be = |domain: &DomainId| {
            let is_used = around(*domain).is_some_and(|around| of_spread.contains(&around));
            if is_used { count >= spread.min } else { count < spread.max }
        };
        units.filter(may_be).collect()
    }

    /// By how much a domain should be avoided to spread slices evenly.
    pub(super) fn load(&self, domain: DomainId, used: &[(usize, DomainId)]) -> usize {
        let Some(spread) = self.spread.as_ref().filter(|spread| spread.min > 1) else { return 0 };
        let around = |domain: DomainId| self.target.tree.ancestor_at(domain, spread.depth);
        let own = around(domain);
        let held = own.and_then(|own| spread.used.get(&own)).map_or(0, |held| held / self.size);
        usize::try_from(held).unwrap_or(0) + used.iter().filter(|(_, other)| around(*other) == own).count()
    }
}

/// Slices by what is known of them before a domain is chosen.
pub(super) struct Divided {
    pub(super) slices: Vec<Slice>,
    /// Those of members that are placed, with their domains.
    at_home: Vec<(usize, DomainId)>,
    /// The others, and of these the whole ones and those that are not.
    free: Vec<usize>,
    whole: Vec<usize>,
    parts: Vec<usize>,
}

impl Divided {
    pub(super) fn new(slices: Vec<Slice>, size: usize) -> Self {
        let at_home = slices.iter().enumerate().filter_map(|(at, slice)| Some((at, slice.home?))).collect();
        let free: Vec<usize> = (0..slices.len()).filter(|at| slices[*at].home.is_none()).collect();
        let (whole, parts) = free.iter().copied().partition(|at| slices[*at].pods.len() == size);
        Self { slices, at_home, free, whole, parts }
    }
}

/// Assigns slices to the domains inside of a domain: as many as possible, and at least the needed pods if they fit.
pub(super) fn assign(rules: &Rules<'_>, rooms: &Rooms, inside: DomainId, divided: &Divided, needed: i64) -> Assignment {
    let Divided { slices, at_home, free, whole, parts } = divided;
    let tree = &rules.target.tree;
    let mut left = Left {
        rules,
        rooms: rules.units(inside).map(|domain| (domain, rooms.room(domain))).collect(),
        occupied: if rules.alone { rules.held.clone() } else { BTreeSet::new() },
        spread: rules.spread.as_ref().map_or_else(BTreeMap::new, |spread| spread.used.clone()),
    };
    let mut done = Assignment::default();
    for (at, home) in at_home.iter().filter(|(_, home)| tree.is_inside(*home, inside)) {
        // Closed domains are open to members of a slice that is there.
        let room = *left.rooms.entry(*home).or_insert_with(|| rooms.room(*home));
        left.put(&mut done, *at, (slices[*at].pods.len() as i64).min(room), *home);
    }
    done.is_exact = parts.len() <= 1 && (parts.is_empty() || rules.spread.is_none());
    let all = left.distribute(inside, free.len());
    let capacity: i64 = left.rooms.keys().map(|domain| left.slices_in(*domain)).sum();
    done.slack = (capacity - free.len() as i64).saturating_mul(rules.size);
    if all.iter().map(|(_, units)| units).sum::<usize>() == free.len() {
        left.put_in_order(&mut done, slices, free, all);
        return done;
    }
    let of_whole = left.distribute(inside, whole.len());
    let (placed, unplaced) = whole.split_at(of_whole.iter().map(|(_, units)| units).sum());
    left.put_in_order(&mut done, slices, placed, of_whole);
    // The minimum may end within a slice. Then no other is incomplete.
    let last: i64 = parts.iter().map(|at| slices[*at].pods.len() as i64).sum();
    if needed - done.pods > last && left.put_what_is_needed(&mut done, slices, unplaced.first(), needed) {
        return done;
    }
    let before = done.pods;
    for at in parts {
        let pods = slices[*at].pods.len() as i64;
        if let Some(domain) = left.tightest(pods) {
            left.put(&mut done, *at, pods, domain);
        }
    }
    if done.pods == before {
        left.put_what_is_needed(&mut done, slices, unplaced.first().or(parts.first()), needed);
    }
    done
}

impl Left<'_> {
    /// How many further slices fit into one of their domains.
    fn slices_in(&self, domain: DomainId) -> i64 {
        let room = self.rooms.get(&domain).copied().unwrap_or(0);
        if !self.rules.alone {
            return room / self.rules.size;
        }
        i64::from(room >= self.rules.size && !self.occupied.contains(&domain))
    }

    /// How many fit into a domain of any level.
    fn slices_inside(&self, domain: DomainId) -> i64 {
        let units = self.rules.target.tree.within_at_depth(domain, self.rules.depth);
        units.into_iter().map(|unit| self.slices_in(unit)).sum()
    }

    /// For how many more pods a domain of slices has room, beside whole slices.
    fn rest_inside(&self, domain: DomainId) -> i64 {
        self.rooms.get(&domain).copied().unwrap_or(0)
    }

    fn around(&self, domain: DomainId) -> Option<DomainId> {
        let spread = self.rules.spread.as_ref()?;
        self.rules.target.tree.ancestor_at(domain, spread.depth)
    }

    fn put(&mut self, done: &mut Assignment, slice: usize, pods: i64, domain: DomainId) {
        if pods <= 0 {
            return;
        }
        *self.rooms.entry(domain).or_default() -= pods;
        if self.rules.alone {
            self.occupied.insert(domain);
        }
        if let Some(around) = self.around(domain) {
            *self.spread.entry(around).or_default() += pods;
        }
        done.pods += pods;
        done.parts.push((slice, usize::try_from(pods).unwrap_or(0), domain));
    }

    /// Puts slices into domains, both in their order, so that neighbours in rank are neighbours in the tree.
    fn put_in_order(
        &mut self,
        done: &mut Assignment,
        slices: &[Slice],
        which: &[usize],
        mut domains: Vec<(DomainId, usize)>,
    ) {
        domains.sort_unstable();
        let places = domains.into_iter().flat_map(|(domain, units)| std::iter::repeat_n(domain, units));
        for (at, domain) in which.iter().zip(places.collect::<Vec<_>>()) {
            self.put(done, *at, slices[*at].pods.len() as i64, domain);
        }
    }

    /// Puts as many pods of a slice as the minimum lacks into one domain. Returns whether it did.
    fn put_what_is_needed(
        &mut self,
        done: &mut Assignment,
        slices: &[Slice],
        slice: Option<&usize>,
        needed: i64,
    ) -> bool {
        let missing = needed - done.pods;
        let slice = slice.filter(|at| missing > 0 && missing < self.rules.size.min(slices[**at].pods.len() as i64 + 1));
        let (Some(slice), Some(domain)) = (slice, self.tightest(missing)) else { return false };
        self.put(done, *slice, missing, domain);
        true
    }

    /// The tightest domain with room for a part of a slice.
    fn tightest(&self, pods: i64) -> Option<DomainId> {
        let fits = self.rooms.iter().filter(|(domain, room)| **room >= pods && !self.occupied.contains(*domain));
        let allowed = fits.filter(|(domain, _)| {
            let Some(spread) = &self.rules.spread else { return true };
            let is_used = self.around(**domain).is_some_and(|around| self.spread.contains_key(&around));
            if is_used { self.spread.len() >= spread.min } else { self.spread.len() < spread.max }
        });
        allowed.map(|(domain, room)| (*room, *domain)).min().map(|(_, domain)| domain)
    }

    /// The domains for so many slices, or for as many of them as fit.
    fn distribute(&self, inside: DomainId, count: usize) -> Vec<(DomainId, usize)> {
        let parts = match &self.rules.spread {
            Some(spread) => self.over_domains(spread, inside, count),
            None => vec![(inside, (count as i64).min(self.slices_inside(inside)))],
        };
        let room = |domain| (self.slices_inside(domain), self.rest_inside(domain));
        let (tree, depth) = (&self.rules.target.tree, self.rules.depth);
        let held = &self.rules.target.topology.held;
        let split = parts.into_iter().flat_map(|(domain, units)| split::split(tree, &room, domain, units, depth, held));
        let split = split.filter(|(domain, units)| *units > 0 && tree.depth(*domain) == depth);
        split.map(|(domain, units)| (domain, usize::try_from(units).unwrap_or(0))).collect()
    }

    /// How many slices go to which domain of the spread.
    fn over_domains(&self, spread: &SpreadRule, inside: DomainId, count: usize) -> Vec<(DomainId, i64)> {
        let domains = self.rules.target.tree.within_at_depth(inside, spread.depth).into_iter();
        let rooms = domains.map(|domain| (domain, self.slices_inside(domain))).filter(|(_, room)| *room > 0);
        let (used, mut fresh): (Vec<_>, Vec<_>) = rooms.partition(|(domain, _)| self.spread.contains_key(domain));
        fresh.sort_unstable_by_key(|(domain, room)| (-room, self.rest_inside(*domain), *domain));
        let lacking = spread.min.saturating_sub(self.spread.len());
        let further = spread.max.saturating_sub(self.spread.len());
        // As long as too few domains are used, each slice goes to another one.
        let count = if fresh.len() < lacking { count.min(fresh.len()) } else { count };
        let lacking = lacking.min(count).min(fresh.len());
        let most = further.min(fresh.len());
        // How many fit into those that are used and so many of the largest others.
        let mut fit = vec![used.iter().map(|(_, room)| room).sum::<i64>()];
        for (_, room) in &fresh {
            fit.push(fit[fit.len() - 1] + room);
        }
        let enough = (lacking..=most).find(|new| fit[*new] >= count as i64);
        let new = enough.unwrap_or(most);
        if let Some(last) = new.checked_sub(1).filter(|_| new > lacking && enough.is_some()) {
            // The last one may be the tightest that holds the rest.
            let rest = count as i64 - fit[last];
            let tightest = fresh[last..].iter().filter(|(_, room)| *room >= rest).min_by_key(|(id, room)| (*room, *id));
            if let Some(tightest) = tightest.copied() {
                fresh[last] = tightest;
            }
        }
        let mut chosen: Vec<Share> = used.into_iter().map(|part| self.share(part, false)).collect();
        chosen.extend(fresh[..new].iter().enumerate().map(|(at, part)| self.share(*part, at < lacking)));
        hand_out(&mut chosen, count, spread.min > 1);
        chosen.into_iter().map(|share| (share.domain, share.taken)).collect()
    }

    fn share(&self, (domain, room): (DomainId, i64), must_be_used: bool) -> Share {
        let held = self.spread.get(&domain).copied().unwrap_or(0) / self.rules.size;
        Share { domain, room, held, must_be_used, taken: 0 }
    }
}

/// The share of a domain in the slices of a group.
struct Share {
    domain: DomainId,
    room: i64,
    /// How many slices are there already.
    held: i64,
    must_be_used: bool,
    taken: i64,
}

/// Hands out slices to domains that are large enough together: first one to each that has to be used, then evenly or
/// one domain after the other.
fn hand_out(shares: &mut [Share], count: usize, evenly: bool) {
    let mut count = count as i64;
    for share in shares.iter_mut().filter(|share| share.must_be_used) {
        let first = count.min(1).min(share.room);
        share.taken = first;
        count -= first;
    }
    if !evenly {
        for share in shares {
            let part = count.min(share.room - share.taken);
            share.taken += part;
            count -= part;
        }
        return;
    }
    let key = |share: &Share, at: usize| (share.taken < share.room).then(|| Reverse((share.held + share.taken, at)));
    let mut open: BinaryHeap<_> = shares.iter().enumerate().filter_map(|(at, share)| key(share, at)).collect();
    while let Some(Reverse((_, at))) = open.pop().filter(|_| count > 0) {
        shares[at].taken += 1;
        count -= 1;
        open.extend(key(&shares[at], at));
    }
}
