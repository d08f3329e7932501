use super::{HostInput, HostSlot, ShapeEntry, ShapeProgram, SymbolSource};
use crate::Coded;
use crate::op::{HostError, Op, total};
use crate::{Dim, Ordered, Symbol};
use std::collections::{BTreeMap, BTreeSet};
use strum::IntoStaticStr;
use thiserror::Error;

/// The results of a shape program.
#[derive(Clone, Debug, Default)]
pub struct ShapeValues {
    /// By slot.
    pub slots: Vec<Vec<i64>>,
    /// By symbol.
    pub symbols: BTreeMap<Symbol, i64>,
}

/// Why a shape program failed.
#[derive(Clone, Debug, Error, PartialEq, IntoStaticStr)]
#[strum(serialize_all = "snake_case", prefix = "sizes.")]
#[non_exhaustive]
pub enum ShapeError {
    /// The program refers to a slot or input without a value.
    #[error("the shape program reads {what}, which has no value: bind every input of the plan")]
    Unbound {
        /// The missing value.
        what: String,
    },
    /// An input, or a value computed from inputs, is invalid.
    #[error("{what}: expected {expected}, got {value} at element {element}")]
    Value {
        /// The invalid value: an input, or an argument with the inputs that it is computed from.
        what: String,
        /// The inputs that the value comes from.
        inputs: Vec<String>,
        /// The valid values.
        expected: String,
        /// Position of the first invalid element: its sample, if there is one value per sample.
        element: usize,
        /// The value.
        value: i64,
    },
    /// A vector has a wrong number of entries.
    #[error("{what}: expected {expected} entries, got {actual}")]
    Length {
        /// The vector.
        what: String,
        /// The inputs that it comes from.
        inputs: Vec<String>,
        /// The required number.
        expected: usize,
        /// The number found.
        actual: usize,
    },
    /// A host operator failed for another reason.
    #[error("the shape program cannot compute {op}: {reason}")]
    Op {
        /// The operator.
        op: String,
        /// Why.
        reason: String,
    },
}

impl Coded for ShapeError {
    fn code(&self) -> &'static str {
        self.into()
    }
}

/// A failed entry of a program.
struct Failure<'a> {
    /// The value that is computed or checked.
    argument: &'a str,
    /// The role of an operand.
    role: &'a dyn Fn(usize) -> String,
    reads: &'a [HostSlot],
}

impl ShapeProgram {
    /// Runs the program. `inputs` are host inputs with their values; `extent` returns the extent of a named input.
    ///
    /// # Errors
    /// [`ShapeError`] names the input that is missing or invalid.
    pub fn run<'a>(
        &self,
        inputs: impl IntoIterator<Item = (&'a HostInput, Vec<i64>)>,
        extent: impl Fn(&str, usize) -> Option<usize>,
    ) -> Result<ShapeValues, ShapeError> {
        let mut slots: Vec<Option<Vec<i64>>> = vec![None; self.slots];
        let mut named = Vec::new();
        for (input, value) in inputs {
            if let Some(place) = slots.get_mut(input.slot.0 as usize) {
                *place = Some(value);
            }
            named.push(input);
        }
        let mut symbols = BTreeMap::new();
        for entry in &self.entries {
            match entry {
                ShapeEntry::Compute { op, inputs, output } => {
                    let operands = inputs.iter().map(|&slot| read(&slots, slot)).collect::<Result<Vec<_>, _>>()?;
                    let value = op.evaluate(&operands, |symbol| symbols.get(&symbol).copied()).map_err(|error| {
                        let role = |operand| format!("operand {operand}");
                        self.failed(error, &named, &Failure { argument: op.name(), role: &role, reads: inputs })
                    })?;
                    if let Some(place) = slots.get_mut(output.0 as usize) {
                        *place = Some(value);
                    }
                }
                ShapeEntry::Define { symbol, source } => {
                    let value = match source {
                        SymbolSource::Extent { input, axis } => extent(input, *axis)
                            .and_then(|n| i64::try_from(n).ok())
                            .ok_or_else(|| ShapeError::Unbound { what: format!("input `{input}`") })?,
                        SymbolSource::Total(slot) => total(read(&slots, *slot)?).map_err(|error| {
                            let role = |_| "values".to_owned();
                            self.failed(error, &named, &Failure { argument: "a sum", role: &role, reads: &[*slot] })
                        })?,
                        SymbolSource::Scalar(slot) => match *read(&slots, *slot)? {
                            [value] => value,
                            _ => return Err(ShapeError::Unbound { what: "a scalar".to_owned() }),
                        },
                    };
                    symbols.insert(*symbol, value);
                }
                ShapeEntry::Check { check, inputs, argument } => {
                    let operands = inputs.iter().map(|&slot| read(&slots, slot)).collect::<Result<Vec<_>, _>>()?;
                    check.verify(&operands, |symbol| symbols.get(&symbol).copied()).map_err(|error| {
                        let role = |operand| check.role(operand).to_owned();
                        self.failed(error, &named, &Failure { argument, role: &role, reads: inputs })
                    })?;
                }
            }
        }
        Ok(ShapeValues { slots: slots.into_iter().map(Option::unwrap_or_default).collect(), symbols })
    }

    /// The extents of inputs, by symbol.
    ///
    /// # Errors
    /// [`ShapeError::Unbound`] names the input without an extent.
    pub fn extents(&self, extent: impl Fn(&str, usize) -> Option<usize>) -> Result<BTreeMap<Symbol, i64>, ShapeError> {
        let mut extents = BTreeMap::new();
        for entry in &self.entries {
            if let ShapeEntry::Define { symbol, source: SymbolSource::Extent { input, axis } } = entry {
                let value = extent(input, *axis).and_then(|n| i64::try_from(n).ok());
                extents.insert(*symbol, value.ok_or_else(|| ShapeError::Unbound { what: format!("input `{input}`") })?);
            }
        }
        Ok(extents)
    }

    /// The required extents of a tensor for an error message: as numbers, and with the names of sizes.
    pub fn expected(&self, shape: &[Dim], symbols: &BTreeMap<Symbol, i64>) -> String {
        let extent = |dim: &Dim| dim.evaluate(|symbol| symbols.get(&symbol).copied());
        let declared: Vec<String> = shape.iter().map(|dim| self.display(dim)).collect();
        let declared = format!("[{}]", declared.join(", "));
        match shape.iter().map(extent).collect::<Option<Vec<_>>>().map(|shape| format!("{shape:?}")) {
            Some(shape) if shape != declared => format!("{shape} = {declared}"),
            _ => declared,
        }
    }

    fn failed(&self, error: HostError, named: &[&HostInput], failure: &Failure<'_>) -> ShapeError {
        let origins =
            |operand: usize| failure.reads.get(operand).map(|&slot| self.origins(slot, named)).unwrap_or_default();
        match error {
            HostError::Entry { operand, entry: element, expected, value } => {
                let (what, inputs) = (self.subject(operand, named, failure), origins(operand));
                let mut others = (0..failure.reads.len()).flat_map(origins).ordered_set();
                others.retain(|name| !inputs.contains(name));
                let expected = match list(&others.into_iter().collect::<Vec<_>>()) {
                    others if others.is_empty() => expected,
                    others => format!("{expected} by {others}"),
                };
                ShapeError::Value { what, inputs, expected, element, value }
            }
            HostError::Length { operand, expected, actual } => {
                let (what, inputs) = (self.subject(operand, named, failure), origins(operand));
                ShapeError::Length { what, inputs, expected, actual }
            }
            HostError::Size { size } => ShapeError::Op {
                op: failure.argument.to_owned(),
                reason: format!("the size {} is negative or too large", self.display(&size)),
            },
            other @ (HostError::Operands { .. } | HostError::Memory { .. }) => {
                ShapeError::Op { op: failure.argument.to_owned(), reason: other.to_string() }
            }
        }
    }

    /// The name in an error message of an operand of the failed entry.
    fn subject(&self, operand: usize, named: &[&HostInput], failure: &Failure<'_>) -> String {
        let slot = failure.reads.get(operand).copied();
        if let Some(input) = named.iter().find(|input| Some(input.slot) == slot) {
            return format!("input `{}`", input.name);
        }
        let what = match (failure.role)(operand) {
            role if role.is_empty() => failure.argument.to_owned(),
            role => format!("the {role} of {}", failure.argument),
        };
        match list(&slot.map(|slot| self.origins(slot, named)).unwrap_or_default()) {
            inputs if inputs.is_empty() => what,
            inputs => format!("{what} (from {inputs})"),
        }
    }

    /// The names of the inputs that a value is computed from.
    fn origins(&self, slot: HostSlot, named: &[&HostInput]) -> Vec<String> {
        let (mut slots, mut symbols, mut names) = (BTreeSet::from([slot]), BTreeSet::new(), BTreeSet::new());
        for entry in self.entries.iter().rev() {
            match entry {
                ShapeEntry::Compute { op, inputs, output } if slots.contains(output) => {
                    slots.extend(inputs);
                    symbols.extend(op.sizes().iter().flat_map(Dim::terms).map(|(symbol, _)| symbol));
                }
                ShapeEntry::Define { symbol, source } if symbols.contains(symbol) => match source {
                    SymbolSource::Extent { input, .. } => drop(names.insert(input.clone())),
                    SymbolSource::Total(slot) | SymbolSource::Scalar(slot) => drop(slots.insert(*slot)),
                },
                _ => {}
            }
        }
        names.extend(named.iter().filter(|input| slots.contains(&input.slot)).map(|input| input.name.clone()));
        names.into_iter().collect()
    }
}

/// Lists names of inputs in a sentence; empty without names.
fn list(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [one] => format!("input {one}"),
        all => format!("inputs {}", all.join(", ")),
    }
}

fn read(slots: &[Option<Vec<i64>>], slot: HostSlot) -> Result<&[i64], ShapeError> {
    slots
        .get(slot.0 as usize)
        .and_then(Option::as_deref)
        .ok_or_else(|| ShapeError::Unbound { what: format!("host slot {}", slot.0) })
}
