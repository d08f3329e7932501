//! Drawing without other programs.

mod layered;
mod paint;
mod scene;

use super::{Graph, SizeSource};
use crate::Symbol;
use std::collections::{BTreeSet, HashMap};

impl Graph {
    /// A picture of the graph as SVG.
    ///
    /// Data flows down. Fused operators are boxes around their bodies, with their module path and the types
    /// of their results. Parameters, values of the shape program and far away values are written into the boxes that
    /// read them, scalar constants into the titles; `%3` is the number that [`Graph::text`] gives a node. Hovering
    /// over a box shows all of its attributes.
    pub fn svg(&self) -> String {
        let picture = scene::picture(self, &scene::Frame::default());
        paint::document(&picture, &self.size_legend())
    }

    /// One line a size that types mention, `s0 = users, extent 0 of lengths`.
    fn size_legend(&self) -> Vec<String> {
        let order = self.order().unwrap_or_default();
        let numbers: HashMap<_, _> = order.iter().enumerate().map(|(number, id)| (*id, number)).collect();
        let types = order.iter().filter_map(|id| self.node(*id)).flat_map(|node| &node.types);
        let used: BTreeSet<Symbol> =
            types.flat_map(|ty| &ty.shape).flat_map(|dim| dim.terms().map(|(symbol, _)| symbol)).collect();
        let describe = |symbol: Symbol| {
            let size = self.sizes().get(symbol.0 as usize)?;
            let value = |value: &super::Value| {
                let number = numbers.get(&value.node).copied().unwrap_or_default();
                format!("%{number} {}", self.name_of(value.node))
            };
            let source = match &size.source {
                SizeSource::Unbound => size.name.clone(),
                SizeSource::Extent { input, axis } => format!("extent {axis} of {input}"),
                SizeSource::Total(total) => format!("sum of {}", value(total)),
                SizeSource::Scalar(scalar) => value(scalar),
            };
            Some(format!("s{} = {source}", symbol.0))
        };
        used.into_iter().filter_map(describe).collect()
    }
}
