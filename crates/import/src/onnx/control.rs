//! Control flow that can be resolved while a model is read: branches are chosen, loops are unrolled.

use super::frame::{Frame, Slot, op};
use super::item::Item;
use super::node::axis;
use super::schema::{GraphProto, NodeProto};
use crate::ImportError;
use crate::array::Array;
use crate::size::Size;
use crate::value::{Fault, Lowered};
use std::collections::BTreeSet;

/// Maximum number of unrolled iterations.
const MAX_TRIPS: usize = 1 << 12;

/// The control flow operators.
pub(super) const OPERATORS: [&str; 4] = ["If", "Loop", "Scan", "SequenceMap"];

/// Lowers a control flow node. Indices of inputs whose values must be known are added to `wanted`.
pub(super) fn lower(
    frame: &mut Frame<'_>,
    node: &NodeProto,
    slots: &[Slot],
    wanted: &mut BTreeSet<usize>,
) -> Result<Lowered<Vec<Item>>, ImportError> {
    match op(node) {
        "If" => branch(frame, node, slots, wanted),
        "Loop" => repeated(frame, node, slots, wanted),
        "Scan" => scan(frame, node, slots),
        _ => mapped(frame, node, slots),
    }
}

fn graph(frame: &Frame<'_>, node: &NodeProto, name: &str) -> Result<GraphProto, ImportError> {
    frame.deeper(node)?;
    let attributes = frame.attributes(node);
    let body = attributes.get(name).and_then(|attribute| attribute.g.clone());
    body.ok_or_else(|| ImportError::program(op(node), format!("no body `{name}`")))
}

/// The first integer of an input, if its value is known.
fn known(slot: &Slot) -> Option<i64> {
    match &slot.item {
        Item::Constant(constant) => constant.data.tensor.to_i64().first().copied(),
        _ => None,
    }
}

fn items(slots: Lowered<Vec<Slot>>) -> Lowered<Vec<Item>> {
    Ok(slots?.into_iter().map(|slot| slot.item).collect())
}

fn branch(
    frame: &mut Frame<'_>,
    node: &NodeProto,
    slots: &[Slot],
    wanted: &mut BTreeSet<usize>,
) -> Result<Lowered<Vec<Item>>, ImportError> {
    let condition = slots.first().ok_or_else(|| ImportError::program("If", "no condition"))?;
    if let Some(value) = known(condition) {
        let body = graph(frame, node, if value != 0 { "then_branch" } else { "else_branch" })?;
        return Ok(items(frame.body(&body, vec![])?));
    }
    wanted.insert(0);
    Ok(Fault::unsupported("a condition that is computed, but must be known"))
}

fn repeated(
    frame: &mut Frame<'_>,
    node: &NodeProto,
    slots: &[Slot],
    wanted: &mut BTreeSet<usize>,
) -> Result<Lowered<Vec<Item>>, ImportError> {
    let body = graph(frame, node, "body")?;
    let given = |place: usize| slots.get(place).filter(|slot| !matches!(slot.item, Item::Absent));
    let trips = match given(0) {
        None => None,
        Some(slot) => match known(slot) {
            Some(trips) => Some(usize::try_from(trips).unwrap_or(0)),
            None => {
                wanted.insert(0);
                return Ok(Fault::unsupported("a number of iterations that is computed, but must be known"));
            }
        },
    };
    let mut goes_on = match given(1) {
        None => true,
        Some(slot) => match known(slot) {
            Some(value) => value != 0,
            None => {
                wanted.insert(1);
                return Ok(Fault::unsupported("a condition that is computed, but must be known"));
            }
        },
    };
    let mut carried: Vec<Slot> = slots.iter().skip(2).cloned().collect();
    let count = carried.len();
    let mut scanned: Vec<Vec<Item>> = vec![vec![]; body.output.len().saturating_sub(count + 1)];
    let mut trip = 0usize;
    while goes_on && trips.is_none_or(|trips| trip < trips) {
        if trip >= MAX_TRIPS {
            return Ok(Fault::unsupported(format!("more than {MAX_TRIPS} iterations")));
        }
        let number = match Item::integers(vec![], &[trip as i64]) {
            Ok(number) => Slot::of(number),
            Err(fault) => return Ok(Err(fault)),
        };
        let condition = rewire_graph::HostTensor::from_f64(rewire_graph::DType::Bool, vec![], &[1.0]);
        let condition = condition.map_err(|source| ImportError::Tensor { name: "Loop".to_owned(), source })?;
        let condition = Slot::of(Item::constant(crate::ScalarType::Bool, condition));
        let inputs = [number, condition].into_iter().chain(carried.iter().cloned()).collect();
        let results = match frame.body(&body, inputs)? {
            Ok(results) => results,
            Err(fault) => return Ok(Err(fault)),
        };
        let Some((next, rest)) = results.split_first() else { return Ok(Fault::program("a body without results")) };
        goes_on = match known(next) {
            Some(value) => value != 0,
            None if next.sources.is_empty() => {
                return Ok(Fault::unsupported("a condition that is computed, but must be known"));
            }
            None => {
                frame.program.wanted.borrow_mut().extend(next.sources.iter().cloned());
                wanted.extend(0..slots.len());
                return Ok(Fault::unsupported("a condition that is computed, but must be known"));
            }
        };
        if rest.len() < count {
            return Ok(Fault::program("a body with too few results"));
        }
        carried = rest[..count].to_vec();
        scanned.iter_mut().zip(&rest[count..]).for_each(|(all, slot)| all.push(slot.item.clone()));
        trip += 1;
    }
    let mut results: Vec<Item> = carried.into_iter().map(|slot| slot.item).collect();
    for parts in scanned {
        match stacked(frame, &parts, 0) {
            Ok(item) => results.push(item),
            Err(fault) => return Ok(Err(fault)),
        }
    }
    Ok(Ok(results))
}

/// Stacks the values of iterations along a new axis.
fn stacked(frame: &Frame<'_>, parts: &[Item], place: i64) -> Lowered<Item> {
    let cx = frame.program.cx;
    let arrays = parts.iter().map(|item| frame.program.store.array(cx, item)).collect::<Lowered<Vec<Array>>>()?;
    let Some(first) = arrays.first() else {
        return Fault::unsupported("a loop without iterations that returns a scan");
    };
    let along = axis(place, first.rank() + 1)?;
    let parts = arrays.iter().map(|x| cx.unsqueeze(&x.tensor, along)).collect::<Lowered<Vec<_>>>()?;
    Ok(Item::Array(Array { tensor: cx.concat(&parts, along), ty: first.ty }))
}

fn scan(frame: &mut Frame<'_>, node: &NodeProto, slots: &[Slot]) -> Result<Lowered<Vec<Item>>, ImportError> {
    let body = graph(frame, node, "body")?;
    let attributes = frame.attributes(node);
    let ints = |name: &str| attributes.get(name).map(|attribute| attribute.ints.clone()).unwrap_or_default();
    let scans = attributes.get("num_scan_inputs").and_then(|attribute| attribute.i).unwrap_or(0);
    let (in_axes, in_sides) = (ints("scan_input_axes"), ints("scan_input_directions"));
    let (out_axes, out_sides) = (ints("scan_output_axes"), ints("scan_output_directions"));
    let version = frame.opsets.get("").copied().unwrap_or(0);
    let run = |frame: &mut Frame<'_>, slots: &[Slot]| {
        let scans = usize::try_from(scans).ok().filter(|scans| *scans > 0 && *scans <= slots.len());
        let Some(scans) = scans else { return Ok(Fault::program("Scan without an input to scan")) };
        let (states, scanned) = slots.split_at(slots.len() - scans);
        steps(frame, &body, states, scanned, [&in_axes, &in_sides, &out_axes, &out_sides])
    };
    if version < 9 {
        return Ok(Fault::unsupported("Scan before operator set 9"));
    }
    run(frame, slots)
}

fn steps(
    frame: &mut Frame<'_>,
    body: &GraphProto,
    states: &[Slot],
    scanned: &[Slot],
    [in_axes, in_sides, out_axes, out_sides]: [&[i64]; 4],
) -> Result<Lowered<Vec<Item>>, ImportError> {
    let (cx, store) = (frame.program.cx, frame.program.store);
    let mut arrays = vec![];
    for (n, slot) in scanned.iter().enumerate() {
        let array = match store.array(cx, &slot.item) {
            Ok(array) => array,
            Err(fault) => return Ok(Err(fault)),
        };
        match axis(in_axes.get(n).copied().unwrap_or(0), array.rank()) {
            Ok(along) => arrays.push((array, along, slot)),
            Err(fault) => return Ok(Err(fault)),
        }
    }
    let Some(trips) = arrays.first().and_then(|(x, along, _)| cx.extent(&x.tensor, *along).as_extent()) else {
        return Ok(Fault::unsupported("a scan of symbolic length"));
    };
    if trips > MAX_TRIPS {
        return Ok(Fault::unsupported(format!("more than {MAX_TRIPS} iterations")));
    }
    let mut carried = states.to_vec();
    let mut outputs: Vec<Vec<Item>> = vec![vec![]; body.output.len().saturating_sub(states.len())];
    for trip in 0..trips {
        let mut inputs = carried.clone();
        for (n, (x, along, slot)) in arrays.iter().enumerate() {
            let is_back = in_sides.get(n) == Some(&1);
            let place = if is_back { trips - 1 - trip } else { trip };
            match cx.select(&x.tensor, *along, &Size::from(place)) {
                Ok(tensor) => inputs.push(Slot { item: Item::Array(Array { tensor, ty: x.ty }), ..(*slot).clone() }),
                Err(fault) => return Ok(Err(fault)),
            }
        }
        let results = match frame.body(body, inputs)? {
            Ok(results) => results,
            Err(fault) => return Ok(Err(fault)),
        };
        if results.len() < states.len() {
            return Ok(Fault::program("a body with too few results"));
        }
        carried = results[..states.len()].to_vec();
        outputs.iter_mut().zip(&results[states.len()..]).for_each(|(all, slot)| all.push(slot.item.clone()));
    }
    let mut results: Vec<Item> = carried.into_iter().map(|slot| slot.item).collect();
    for (n, mut parts) in outputs.into_iter().enumerate() {
        if out_sides.get(n) == Some(&1) {
            parts.reverse();
        }
        match stacked(frame, &parts, out_axes.get(n).copied().unwrap_or(0)) {
            Ok(item) => results.push(item),
            Err(fault) => return Ok(Err(fault)),
        }
    }
    Ok(Ok(results))
}

/// Applies a body to each element of a sequence.
fn mapped(frame: &mut Frame<'_>, node: &NodeProto, slots: &[Slot]) -> Result<Lowered<Vec<Item>>, ImportError> {
    let body = graph(frame, node, "body")?;
    let Some(Item::List(first)) = slots.first().map(|slot| &slot.item) else {
        return Ok(Fault::unsupported("a sequence that is not known"));
    };
    let mut lists: Vec<Vec<Item>> = vec![vec![]; body.output.len()];
    for place in 0..first.len() {
        let mut inputs = vec![];
        for slot in slots {
            let item = match &slot.item {
                Item::List(items) => items.get(place).cloned().unwrap_or(Item::Absent),
                item => item.clone(),
            };
            inputs.push(Slot { item, ..slot.clone() });
        }
        match frame.body(&body, inputs)? {
            Ok(results) => lists.iter_mut().zip(results).for_each(|(list, slot)| list.push(slot.item)),
            Err(fault) => return Ok(Err(fault)),
        }
    }
    Ok(Ok(lists.into_iter().map(Item::List).collect()))
}
