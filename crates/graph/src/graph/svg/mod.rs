//! SVG drawings without external programs.

mod layered;
mod paint;
mod scene;

use super::{Graph, Remarks, SizeSource};
use crate::Symbol;
use std::collections::{BTreeSet, HashMap};

impl Graph {
    /// Draws the graph as SVG.
    ///
    /// Data flows down. A fused operator is a box around its body, with its module path and the types of its results.
    /// Parameters, host values and distant values are written into the boxes of their readers, scalar constants into
    /// the titles. `%3` is the number of a node in [`Graph::text`]. Hovering over a box shows all its attributes.
    pub fn svg(&self) -> String {
        self.svg_with(&Remarks::default())
    }

    /// [`Graph::svg`] with remarks in the boxes of fused operators and below the graph.
    pub fn svg_with(&self, remarks: &Remarks) -> String {
        let picture = scene::picture(self, &scene::Frame::of_graph(remarks));
        paint::document(&picture, &[self.size_legend(), remarks.graph.clone()].concat())
    }

    /// One line for each size that types contain, `s0 = users, extent 0 of lengths`.
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

#[cfg(test)]
mod tests {
    use crate::op::Fused;
    use crate::{DType, Graph, Scope, Type};
    use std::sync::Arc;

    /// Checks nesting, quoting and escaping, and returns the number of elements.
    fn elements(xml: &str) -> usize {
        let (mut open, mut count, mut rest) = (vec![], 0, xml);
        while let Some(start) = rest.find('<') {
            assert!(!rest[..start].contains('>'), "stray > in {:?}", &rest[..start]);
            let end = start + rest[start..].find('>').unwrap();
            let tag = &rest[start + 1..end];
            assert!(!tag.contains('<') && tag.matches('"').count() % 2 == 0, "bad tag {tag:?}");
            let name = tag.trim_matches('/').split_whitespace().next().unwrap();
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name));
            } else {
                count += 1;
                open.extend((!tag.ends_with('/')).then_some(name));
            }
            rest = &rest[end + 1..];
        }
        for entity in xml.split('&').skip(1) {
            assert!(["amp;", "lt;", "gt;", "quot;"].iter().any(|known| entity.starts_with(known)), "{entity:.8}");
        }
        assert!(open.is_empty() && rest.trim().is_empty());
        count
    }

    #[test]
    fn hostile_names_are_escaped() {
        let scope = Scope::new();
        let rows = scope.size("<rows> & \"more\"");
        let x = scope.input("<x>&\"'\u{1}", DType::F32, &[rows, 4.into()]);
        let y = scope.module("a<b>.c&d", |scope| x.matmul(&scope.parameter("]]>w", DType::F32, &[4.into(), 8.into()])));
        let svg = scope.finish(&[("</svg>", y)]).unwrap().svg();
        elements(&svg);
        assert!(svg.contains("&lt;x&gt;&amp;&quot;'\u{fffd}") && svg.contains("&lt;/svg&gt;"));
    }

    #[test]
    fn an_empty_graph_has_a_picture() {
        elements(&Graph::new().svg());
    }

    #[test]
    fn fused_operators_show_their_bodies() {
        let ty = Type::device(DType::F32, vec![8.into()]);
        let body = Scope::new();
        let x = body.capture("0", &ty);
        let y = body.capture("1", &ty);
        let sum = &(&x + &y) * 0.25;
        let body = body.finish_within(&[("0", sum.silu()), ("1", sum)]).unwrap();
        let scope = Scope::new();
        let x = scope.input("x", DType::F32, &[8.into()]).value().unwrap();
        let weight = scope.parameter("weight", DType::F32, &[8.into()]).value().unwrap();
        let mut graph = scope.finish(&[]).unwrap();
        let node =
            graph.add(Arc::new(Fused { name: "pointwise".into(), body, nest: None }), &[x, weight], "layer").unwrap();
        graph.add_output("activated", crate::Value { node, port: 0 }).unwrap();
        graph.add_output("sum", crate::Value { node, port: 1 }).unwrap();
        let svg = graph.svg();
        elements(&svg);
        for text in [">pointwise<", ">layer<", ">mul(·, 0.25)<", ">silu<", ">weight f32[8]<", ">activated<"] {
            assert!(svg.contains(text), "{text} is missing");
        }
    }

    #[test]
    fn large_graphs_are_drawn() {
        let scope = Scope::new();
        let first = scope.input("x", DType::F32, &[scope.size("rows"), 4.into()]);
        let mut values = vec![first.clone()];
        for n in 1..500 {
            let next = &values[n * 7919 % n] + &values[n - 1 - n % 3 % n];
            values.push(next);
        }
        let last = values.into_iter().reduce(|sum, value| &sum + &value).unwrap();
        let graph = scope.finish(&[("sum", last)]).unwrap();
        assert!(elements(&graph.svg()) > 2000);
    }
}
