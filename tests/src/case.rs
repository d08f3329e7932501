//! A graph with its data, and the check that every backend computes the correct results.

use crate::backend::{Tensors, oracle, plan, run, session, tolerance};
use crate::compare::{Results, Tolerance, differences};
use crate::noise::Noise;
use rewire_graph::op::{Input, Parameter};
use rewire_graph::{DType, Graph, HostTensor, Layout, Type};
use rewire_graph_rewrite::optimize;
use rewire_runtime::Kernel;

/// A graph with its data.
#[derive(Clone, Debug)]
pub struct GraphCase {
    /// The graph.
    pub graph: Graph,
    /// Its inputs.
    pub inputs: Tensors,
    /// Its parameters.
    pub parameters: Tensors,
}

impl GraphCase {
    /// A graph with random inputs and parameters, given its sizes by name.
    pub fn random(graph: Graph, sizes: &[(&str, usize)], seed: u64) -> Self {
        let mut case = Self { inputs: Tensors::new(), parameters: Tensors::new(), graph };
        for id in case.graph.ids() {
            let Some(node) = case.graph.node(id) else { continue };
            let op = node.op.as_ref();
            if let Some(input) = op.downcast_ref::<Input>() {
                let tensor = values(&case.graph, &input.ty, &input.name, sizes, seed);
                case.inputs.insert(input.name.clone(), tensor);
            } else if let Some(parameter) = op.downcast_ref::<Parameter>() {
                let tensor = values(&case.graph, &parameter.ty, &parameter.name, sizes, seed);
                case.parameters.insert(parameter.name.clone(), tensor);
            }
        }
        case
    }

    /// The names of the steps of the graph's plan.
    pub fn steps(&self) -> Vec<String> {
        plan(&self.graph).unwrap().steps.into_iter().map(|step| step.name).collect()
    }

    /// Panics unless the rewritten graph, the CPU and the adapter, if there is one, match the interpreter.
    pub fn check(&self) {
        self.check_on(&[Kernel::Cpu, Kernel::Wgpu]);
    }

    /// As [`GraphCase::check`], on some kernels.
    pub fn check_on(&self, kernels: &[Kernel]) {
        let expected = oracle(&self.graph, &self.inputs, &self.parameters).unwrap();
        let (fused, _) = optimize(self.graph.clone()).unwrap();
        let actual = oracle(&fused, &self.inputs, &self.parameters).unwrap();
        let found = differences(&actual, &expected, Tolerance { relative: 1e-6, ..Tolerance::SINGLE });
        assert!(found.is_empty(), "rewritten: {}\n{}", found.join("\n"), fused.text());
        for &kernel in kernels {
            let dtypes = self.inputs.values().chain(self.parameters.values()).map(HostTensor::dtype);
            let found = self.differences(kernel, &expected, tolerance(kernel, dtypes)).unwrap();
            assert!(found.is_empty(), "{kernel}: {}\n{}", found.join("\n"), fused.text());
        }
    }

    /// The differences between a kernel's results and the expected ones; none if it needs an adapter and there is none.
    pub fn differences(&self, kernel: Kernel, expected: &Results, tolerance: Tolerance) -> Result<Vec<String>, String> {
        match session(&self.graph, &self.parameters, kernel)? {
            Some(mut session) => Ok(differences(&run(&mut session, &self.inputs)?, expected, tolerance)),
            None => Ok(vec![]),
        }
    }
}

/// Floats, or small integers.
fn values(graph: &Graph, ty: &Type, name: &str, sizes: &[(&str, usize)], seed: u64) -> HostTensor {
    assert!(ty.layout == Layout::Device, "{name} is on the host");
    let size = |symbol: rewire_graph::Symbol| {
        let wanted = &graph.sizes()[symbol.0 as usize].name;
        sizes.iter().find(|(name, _)| name == wanted).map(|(_, size)| *size as i64)
    };
    let shape: Vec<usize> = ty.shape.iter().map(|dim| dim.evaluate(size).expect("a size for every symbol")).collect();
    if ty.dtype.is_float() {
        return parameter(name, ty.dtype, &shape, seed);
    }
    Noise::new(seed, name).integers(ty.dtype, &shape, 0, 5)
}

/// Floats in -1 to 1; variances, whose names end in `var`, are positive.
pub fn parameter(name: &str, dtype: DType, shape: &[usize], seed: u64) -> HostTensor {
    let tensor = Noise::new(seed, name).floats(dtype, shape, 1.0);
    if !name.ends_with("var") {
        return tensor;
    }
    let positive: Vec<f64> = tensor.to_f64().iter().map(|value| value.abs() + 0.25).collect();
    HostTensor::from_f64(dtype, shape.to_vec(), &positive).unwrap()
}
