//! Constant folding: nodes whose inputs are known are computed by the interpreter.

use super::item::{Item, Store};
use super::node::Node;
use super::ops::Lowering;
use crate::context::Context;
use crate::value::{Fault, Lowered};
use rewire_graph::{Tensor, interpret};
use std::cell::RefCell;
use std::collections::HashMap;

/// Maximum number of input elements of a folded node.
const MAX_ELEMENTS: usize = 1 << 16;

fn elements(item: &Item) -> usize {
    match item {
        Item::Constant(constant) => constant.data.tensor.len(),
        Item::List(items) => items.iter().map(elements).sum(),
        _ => 0,
    }
}

/// The results of a node, if all of its inputs are known and small.
pub(super) fn folded(node: &Node<'_>, lowering: Lowering) -> Option<Lowered<Vec<Item>>> {
    // Matrices are not folded, because products read their quantized integers.
    let is_matrix = node.op == "DequantizeLinear" && node.array(0).is_ok_and(|x| x.rank() > 1);
    let size: usize = node.inputs.iter().map(elements).sum();
    if !node.inputs.iter().all(Item::is_constant) || size > MAX_ELEMENTS || is_matrix {
        return None;
    }
    let (cx, store) = (Context::new(), Store::new(true));
    let inner = Node {
        cx: &cx,
        store: &store,
        op: node.op,
        version: node.version,
        inputs: node.inputs.clone(),
        attributes: node.attributes.clone(),
        results: node.results.clone(),
        wanted: RefCell::default(),
    };
    let mut items = match lowering.run(&inner) {
        Ok(items) => items,
        Err(fault) => return Some(Err(fault)),
    };
    let mut outputs: Vec<(String, Tensor)> = vec![];
    items.iter().for_each(|item| collect(item, &mut outputs));
    if outputs.is_empty() {
        return Some(Ok(items));
    }
    if outputs.iter().any(|(_, tensor)| tensor.is_poisoned()) {
        return Some(Fault::unsupported("operands that the graph does not accept"));
    }
    let most = outputs
        .iter()
        .flat_map(|(_, tensor)| tensor.shape())
        .try_fold(1usize, |size, dim| size.checked_mul(dim.as_const()?.max(1)));
    most.filter(|&size| size <= 1 << 20)?;
    let named: Vec<(&str, Tensor)> = outputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    let graph = cx.scope.finish(&named).ok()?;
    let mut results = interpret(&graph, &HashMap::new(), &HashMap::new()).ok()?.into_iter().collect::<HashMap<_, _>>();
    let mut next = 0;
    for item in &mut items {
        replace(item, &mut next, &mut results)?;
    }
    Some(Ok(items))
}

fn collect(item: &Item, outputs: &mut Vec<(String, Tensor)>) {
    match item {
        Item::Array(array) => outputs.push((outputs.len().to_string(), array.tensor.clone())),
        Item::List(items) => items.iter().for_each(|item| collect(item, outputs)),
        _ => {}
    }
}

fn replace(item: &mut Item, next: &mut usize, results: &mut HashMap<String, rewire_graph::HostTensor>) -> Option<()> {
    match item {
        Item::Array(array) => {
            let tensor = results.remove(&next.to_string())?;
            let stored = if tensor.dtype() == array.ty.dtype() { tensor } else { return None };
            *item = Item::constant(array.ty, stored);
            *next += 1;
        }
        Item::List(items) => items.iter_mut().try_for_each(|item| replace(item, next, results))?,
        _ => {}
    }
    Some(())
}
