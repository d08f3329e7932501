//! Inequalities about unknown integers, and their consequences.

use super::form::{LinearExpr, Var};
use rewire_graph::Arrange;
use rewire_graph::pointwise::ExprId;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;

/// Conditions with their values.
pub(super) type Guard = Rc<BTreeSet<(ExprId, bool)>>;

/// The scope of a fact: points with these coordinates (a bit mask) at which these conditions hold.
#[derive(Clone, Debug, Default)]
pub(super) struct When {
    pub coords: u32,
    pub guard: Guard,
}

impl When {
    /// True if this applies wherever `other` does.
    pub fn covers(&self, other: &Self) -> bool {
        let guards = || Rc::ptr_eq(&self.guard, &other.guard) || self.guard.is_subset(&other.guard);
        self.coords & !other.coords == 0 && guards()
    }
}

/// A form that is not negative.
#[derive(Debug)]
struct Fact {
    form: LinearExpr,
    when: When,
}

/// Linear forms that are not negative, by their unknowns.
#[derive(Debug, Default)]
pub(super) struct Inequalities {
    all: Vec<Fact>,
    about: HashMap<Var, Vec<usize>>,
    /// For an unknown, two lists of forms; all forms of one list are not negative.
    choices: HashMap<Var, [Vec<LinearExpr>; 2]>,
}

/// Limits on successive substitutions of bounds for unknowns; small limits are tried first.
const DEPTHS: [usize; 3] = [3, 6, 12];
/// Step limit of a search.
const STEPS: usize = 1 << 9;
/// Nesting limit of case distinctions.
const CHOICES: usize = 3;

impl Inequalities {
    /// Records that a form is not negative.
    pub fn add(&mut self, form: LinearExpr, when: &When) {
        let Some((leading, _)) = form.terms().next_back() else { return };
        let is_known =
            |&position: &usize| self.all.get(position).is_some_and(|fact| fact.form == form && fact.when.covers(when));
        if self.about.get(&leading).is_some_and(|about| about.iter().any(is_known)) {
            return;
        }
        for (atom, _) in form.terms() {
            self.about.entry(atom).or_default().push(self.all.len());
        }
        self.all.push(Fact { form, when: when.clone() });
    }

    /// Records that forms are not negative, except those that overflow.
    pub fn extend(&mut self, forms: impl IntoIterator<Item = Option<LinearExpr>>, when: &When) {
        forms.into_iter().flatten().for_each(|form| self.add(form, when));
    }

    /// Records that all forms of one of two lists are not negative.
    pub fn choose(&mut self, atom: Var, cases: [Vec<LinearExpr>; 2]) {
        self.choices.insert(atom, cases);
    }

    /// Runs `prove` with additional forms that are not negative.
    pub fn assuming<T>(
        &mut self,
        forms: impl IntoIterator<Item = LinearExpr>,
        prove: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let count = self.all.len();
        forms.into_iter().for_each(|form| self.add(form, &When::default()));
        let result = prove(self);
        for fact in self.all.drain(count..) {
            for (atom, _) in fact.form.terms() {
                if let Some(about) = self.about.get_mut(&atom) {
                    about.retain(|&position| position < count);
                }
            }
        }
        result
    }

    /// True if a form is proven not to be negative.
    pub fn prove(&mut self, form: &LinearExpr, when: &When) -> bool {
        self.prove_within(form, when, CHOICES)
    }

    fn prove_within(&mut self, form: &LinearExpr, when: &When, choices: usize) -> bool {
        let search =
            |depth| Search { facts: self, when, steps: STEPS, seen: HashSet::new() }.follows(form.clone(), depth);
        if DEPTHS.into_iter().any(search) {
            return true;
        }
        let chosen = form.terms().rev().map(|(atom, _)| atom).find(|atom| self.choices.contains_key(atom));
        let Some(cases) = chosen.filter(|_| choices > 0).and_then(|atom| self.choices.remove(&atom).map(|c| (atom, c)))
        else {
            return false;
        };
        let (atom, cases) = cases;
        let proven =
            cases.iter().all(|case| self.assuming(case.clone(), |facts| facts.prove_within(form, when, choices - 1)));
        self.choices.insert(atom, cases);
        proven
    }
}

/// A search for multiples of facts that add up to a form.
struct Search<'a> {
    facts: &'a Inequalities,
    when: &'a When,
    steps: usize,
    seen: HashSet<LinearExpr>,
}

impl Search<'_> {
    /// True if a form is not negative.
    fn follows(&mut self, form: LinearExpr, depth: usize) -> bool {
        let Some((atom, _)) = form.terms().next_back() else { return form.offset() >= 0 };
        if depth == 0 || self.steps == 0 || self.seen.contains(&form) {
            return false;
        }
        self.steps -= 1;
        let facts = self.facts;
        let about = facts.about.get(&atom).map(Vec::as_slice).unwrap_or_default();
        let mut rests = vec![];
        for fact in about.iter().map(|&position| &facts.all[position]) {
            let Some(rest) = form.without(&atom, &fact.form).filter(|_| fact.when.covers(self.when)) else { continue };
            match rest.as_constant() {
                None => rests.push(rest),
                Some(rest) if rest >= 0 => return true,
                Some(_) => {}
            }
        }
        // The candidate with the fewest unknowns is the closest to a proof.
        rests.arrange_by_key(|rest: &LinearExpr| rest.terms().len());
        self.seen.insert(form);
        rests.into_iter().any(|rest| self.follows(rest, depth - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::super::form::{Atoms, VarDef};
    use super::*;

    fn unknowns<const N: usize>() -> [LinearExpr; N] {
        let mut atoms = Atoms::default();
        std::array::from_fn(|n| atoms.form(VarDef::Coord(n as u8)))
    }

    fn above(a: &LinearExpr, b: &LinearExpr, by: i128) -> LinearExpr {
        a.minus(b).unwrap().shifted(-by).unwrap()
    }

    #[test]
    fn bounds_chain_and_integers_round() {
        let [n, row, quotient] = unknowns();
        let always = When::default();
        let mut facts = Inequalities::default();
        let zero = LinearExpr::constant(0);
        facts.add(above(&row, &zero, 0), &always);
        facts.add(above(&n.times(8).unwrap(), &row, 1), &always);
        let eightfold = quotient.times(8).unwrap();
        facts.add(above(&row, &eightfold, 0), &always);
        facts.add(above(&eightfold.shifted(7).unwrap(), &row, 0), &always);
        assert!(facts.prove(&quotient, &always));
        assert!(facts.prove(&above(&n, &quotient, 1), &always));
        assert!(!facts.prove(&above(&n, &quotient, 2), &always));
        assert!(!facts.prove(&above(&quotient, &zero, 1), &always));
    }

    #[test]
    fn facts_hold_where_they_hold() {
        let [a, b] = unknowns();
        let mut facts = Inequalities::default();
        let guard = |value| Rc::new(BTreeSet::from([(ExprId(3), value)]));
        let when = |coords, value| When { coords, guard: guard(value) };
        facts.add(above(&b, &a, 0), &when(0b10, true));
        let goal = above(&b, &a, 0);
        assert!(facts.prove(&goal, &when(0b11, true)));
        assert!(!facts.prove(&goal, &when(0b01, true)));
        assert!(!facts.prove(&goal, &when(0b11, false)));
        assert!(!facts.prove(&goal, &When::default()));
        let assumed = facts.assuming([goal.clone()], |facts| facts.prove(&goal, &When::default()));
        assert!(assumed && !facts.prove(&goal, &When::default()));
    }

    #[test]
    fn both_cases_of_a_choice_are_proven() {
        // The larger of 0 and the smaller of x and 9 is at most 9.
        let [x, least, most] = unknowns();
        let (zero, nine) = (LinearExpr::constant(0), LinearExpr::constant(9));
        let mut facts = Inequalities::default();
        let always = When::default();
        facts.add(above(&x, &least, 0), &always);
        facts.add(above(&nine, &least, 0), &always);
        facts.add(above(&most, &least, 0), &always);
        facts.add(above(&most, &zero, 0), &always);
        let atom = |form: &LinearExpr| form.terms().next_back().unwrap().0;
        let equal = |a: &LinearExpr, b: &LinearExpr| [above(a, b, 0), above(b, a, 0)];
        let goal = above(&nine, &most, 0);
        assert!(!facts.prove(&goal, &always));
        facts.choose(atom(&most), [equal(&most, &least).to_vec(), equal(&most, &zero).to_vec()]);
        assert!(facts.prove(&goal, &always));
        assert!(!facts.prove(&above(&nine, &most, 1), &always));
    }
}
