//! Fusion in five steps: trace, a pass by hand, a pattern, fused against unfused, and a convolution with batch norm.
//!
//! ```sh
//! cargo run --release -p rewire-examples --example fusion
//! ```

use rewire::graph::Value;
use rewire::graph::op::Window;
use rewire::graph_rewrite::RewriteError;
use rewire::graph_rewrite::cost::{kernels, traffic};
use rewire::graph_rewrite::passes::{Context, DeadCode, Pass, Pipeline};
use rewire::graph_rewrite::rules::{TracedRule, rewrite};
use rewire::prelude::*;
use std::error::Error;

/// A layer that someone wrote carelessly: `relu` twice, and `silu` by its formula.
fn layer() -> Result<Graph, Box<dyn Error>> {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, &[scope.size("rows"), 64.into()]);
    let weight = scope.parameter("weight", DType::F32, &[32.into(), 64.into()]);
    let h = x.linear(&weight, None).relu().relu();
    Ok(scope.finish(&[("y", &h / ((-&h).exp() + 1.0))])?)
}

/// Removes a `relu` of a `relu`.
struct OneRelu;

impl Pass for OneRelu {
    fn name(&self) -> &str {
        "one_relu"
    }

    fn run(&self, graph: &Graph, context: &mut Context) -> Result<Graph, RewriteError> {
        let mut changed = graph.clone();
        let is_relu = |graph: &Graph, value: Value| graph.node(value.node).is_some_and(|node| node.op.name() == "relu");
        for id in graph.ids() {
            let outer = Value { node: id, port: 0 };
            let [inner] = changed.inputs(id)[..] else { continue };
            if is_relu(graph, outer) && is_relu(graph, inner) && context.permits(self.name(), graph, id) {
                changed.replace_except(outer, inner, &[]);
            }
        }
        Ok(changed)
    }
}

/// `x / (exp(-x) + 1)` as one operator.
fn silu() -> Result<TracedRule, Box<dyn Error>> {
    Ok(TracedRule::new(
        "silu",
        |p| {
            let x = p.any("x", DType::F32);
            vec![&x / ((-&x).exp() + 1.0)]
        },
        |r| vec![r.tensor("x").silu()],
    )?)
}

/// A convolution, batch norm and `relu` of images `[N, 8, 16, 16]`.
fn convolution() -> Result<Graph, Box<dyn Error>> {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, &[scope.size("images"), 8.into(), 16.into(), 16.into()]);
    let weight = scope.parameter("weight", DType::F32, &[4.into(), 8.into(), 3.into(), 3.into()]);
    let [mean, variance, scale, bias] =
        ["mean", "variance", "scale", "bias"].map(|name| scope.parameter(name, DType::F32, &[4.into()]));
    let y = x.conv2d(&weight, None, &Window { padding: [1, 1], ..Window::default() });
    Ok(scope.finish(&[("y", y.batch_norm(1, [&mean, &variance, &scale, &bias], 1e-5).relu())])?)
}

/// Lowers a graph with and without fusion, and prints kernels and the bytes that they move.
fn compare(title: &str, graph: &Graph) -> Result<(), Box<dyn Error>> {
    for (name, pipeline) in [("fused", Pipeline::default()), ("unfused", Pipeline::default().without("fusion")?)] {
        let (graph, _) = pipeline.run(graph.clone())?;
        println!("{title}, {name}: {} kernels, {} bytes", kernels(&graph)?, traffic(&graph)?);
    }
    Ok(())
}

/// Prints the steps.
pub fn main() -> Result<(), Box<dyn Error>> {
    // 1. Trace: operators of Rust code become a graph.
    let graph = layer()?;
    println!("traced: {} operators", graph.len());

    // 2. A pass by hand: a function from graph to graph, run in a pipeline that checks what it returns.
    let (graph, report) = Pipeline::new(vec![Box::new(OneRelu), Box::new(DeadCode)]).run(graph)?;
    println!("one_relu fired {} time, {} operators are left", report.passes[0].applications.len(), graph.len());

    // 3. A pattern: both sides are traced functions.
    let (graph, fired) = rewrite(&graph, &[&silu()?])?;
    println!("fired: {}, {} operators are left", fired.join(", "), graph.len());

    // 4. Fused against unfused.
    compare("layer", &graph)?;

    // 5. Batch norm becomes part of the convolution's weights, and `relu` its epilogue.
    compare("convolution", &convolution()?)
}
