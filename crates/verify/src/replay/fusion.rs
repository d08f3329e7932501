use super::{Outputs, ReplayError};
use rewire_graph::op::Window;
use rewire_graph::{DType, Dim, Graph, Scope, Tensor};
use rewire_hstu::modules::ConfigError;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};

#[derive(Deserialize)]
struct Nodes {
    inputs: Vec<String>,
    #[serde(default)]
    params: Vec<String>,
    nodes: Vec<Node>,
    outputs: Vec<String>,
}

#[derive(Deserialize)]
struct Node {
    op: String,
    inputs: Vec<String>,
    output: String,
    #[serde(default)]
    attrs: Value,
}

#[derive(Deserialize)]
struct Scalar {
    value: f64,
}

#[derive(Deserialize)]
struct Clamp {
    #[serde(default)]
    min: Option<f64>,
    #[serde(default)]
    max: Option<f64>,
}

#[derive(Deserialize)]
struct Transpose {
    dim0: i64,
    dim1: i64,
}

#[derive(Deserialize)]
struct Softmax {
    dim: i64,
}

#[derive(Deserialize)]
struct Slice {
    dim: i64,
    start: usize,
    length: usize,
}

#[derive(Deserialize)]
struct BatchNorm {
    eps: f64,
}

type Tensors = BTreeMap<String, (DType, Vec<usize>)>;

/// Traces a list of nodes. The first extent of the first input, and of inputs with the same rank and first extent, is symbolic if the
/// nodes accept that.
pub(super) fn trace(attrs: &Value, tensors: &Tensors) -> Result<Graph, ReplayError> {
    let nodes = Nodes::deserialize(attrs)?;
    let symbolic = |scope: &Scope| scope.size("batch");
    nodes.trace(tensors, Some(&symbolic)).or_else(|_| nodes.trace(tensors, None))
}

impl Nodes {
    fn trace(&self, tensors: &Tensors, batch: Option<&dyn Fn(&Scope) -> Dim>) -> Result<Graph, ReplayError> {
        let scope = Scope::new().without_places();
        let mut values = self.sources(&scope, tensors, batch.map(|batch| batch(&scope)))?;
        for node in &self.nodes {
            let operands = node.inputs.iter().map(|name| value(&values, name)).collect::<Result<Vec<_>, _>>()?;
            let result = node.apply(&operands)?;
            values.insert(node.output.clone(), result);
        }
        let outputs: Outputs = self
            .outputs
            .iter()
            .map(|name| Ok((name.clone(), value(&values, name)?)))
            .collect::<Result<_, ReplayError>>()?;
        let named: Vec<(&str, Tensor)> = outputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
        Ok(scope.finish(&named)?)
    }

    /// Inputs and parameters by name.
    fn sources(
        &self,
        scope: &Scope,
        tensors: &Tensors,
        batch: Option<Dim>,
    ) -> Result<HashMap<String, Tensor>, ReplayError> {
        let stored = |prefix: &str, name: &String| {
            let name = format!("{prefix}.{name}");
            tensors.get(&name).ok_or(ReplayError::Missing { name })
        };
        let mut values = HashMap::new();
        let mut batched: Option<(usize, usize)> = None;
        for name in &self.inputs {
            let (dtype, shape) = stored("in", name)?;
            let mut dims: Vec<Dim> = shape.iter().map(|&extent| extent.into()).collect();
            let leading = shape.first().filter(|&&extent| extent != 1).map(|&extent| (shape.len(), extent));
            if let (Some(batch), Some(leading)) = (&batch, leading)
                && *batched.get_or_insert(leading) == leading
                && let Some(first) = dims.first_mut()
            {
                *first = batch.clone();
            }
            values.insert(name.clone(), scope.input(name, *dtype, &dims));
        }
        for name in &self.params {
            let (dtype, shape) = stored("param", name)?;
            let dims: Vec<Dim> = shape.iter().map(|&extent| extent.into()).collect();
            values.insert(name.clone(), scope.parameter(name, *dtype, &dims));
        }
        Ok(values)
    }
}

fn value(values: &HashMap<String, Tensor>, name: &str) -> Result<Tensor, ReplayError> {
    values.get(name).cloned().ok_or_else(|| ReplayError::Missing { name: name.to_owned() })
}

impl Node {
    fn attributes<T: DeserializeOwned>(&self) -> Result<T, ReplayError> {
        Ok(T::deserialize(&self.attrs)?)
    }

    fn apply(&self, operands: &[Tensor]) -> Result<Tensor, ReplayError> {
        Ok(match operands {
            [x] => self.unary(x)?,
            [a, b] => self.binary(a, b)?,
            [a, b, c] => match self.op.as_str() {
                "where" => a.select(b, c),
                "linear" => a.linear(b, Some(c)),
                "conv2d" => a.conv2d(b, Some(c), &self.window()?),
                _ => return Err(self.unsupported()),
            },
            [x, mean, variance, weight, bias] if self.op == "batch_norm2d" => {
                let BatchNorm { eps } = self.attributes()?;
                x.batch_norm(1, [mean, variance, weight, bias], eps)
            }
            _ => return Err(self.unsupported()),
        })
    }

    /// The convolution window; missing attributes have default values.
    fn window(&self) -> Result<Window, ReplayError> {
        if self.attrs.is_null() { Ok(Window::default()) } else { self.attributes() }
    }

    fn unary(&self, x: &Tensor) -> Result<Tensor, ReplayError> {
        Ok(match self.op.as_str() {
            "add_scalar" => x + self.attributes::<Scalar>()?.value,
            "mul_scalar" => x * self.attributes::<Scalar>()?.value,
            "gt_scalar" => x.binary_scalar(rewire_graph::pointwise::BinaryOp::Gt, self.attributes::<Scalar>()?.value),
            "relu" => x.relu(),
            "sigmoid" => x.sigmoid(),
            "silu" => x.silu(),
            "tanh" => x.tanh(),
            "exp" => x.exp(),
            "sqrt" => x.sqrt(),
            "abs" => x.abs(),
            "neg" => -x,
            "square" => x.square(),
            "gelu_erf" => x.gelu_erf(),
            "gelu_tanh" => x.gelu_tanh(),
            "clamp" => {
                let Clamp { min, max } = self.attributes()?;
                x.clamp(min, max)
            }
            "transpose" => {
                let Transpose { dim0, dim1 } = self.attributes()?;
                x.transpose(axis(x, dim0)?, axis(x, dim1)?)
            }
            "softmax" => x.softmax(axis(x, self.attributes::<Softmax>()?.dim)?),
            "slice" => {
                let Slice { dim, start, length } = self.attributes()?;
                x.slice(axis(x, dim)?, start, length)
            }
            _ => return Err(self.unsupported()),
        })
    }

    fn binary(&self, a: &Tensor, b: &Tensor) -> Result<Tensor, ReplayError> {
        Ok(match self.op.as_str() {
            "add" => a + b,
            "sub" => a - b,
            "mul" => a * b,
            "div" => a / b,
            "maximum" => a.maximum(b),
            "minimum" => a.minimum(b),
            "gt" => a.gt(b),
            "matmul" => a.matmul(b),
            "linear" => a.linear(b, None),
            "conv2d" => a.conv2d(b, None, &self.window()?),
            _ => return Err(self.unsupported()),
        })
    }

    fn unsupported(&self) -> ReplayError {
        ReplayError::Unsupported { op: format!("{} of {} operands", self.op, self.inputs.len()) }
    }
}

/// Resolves an axis; negative ones count from the end.
fn axis(x: &Tensor, dim: i64) -> Result<usize, ReplayError> {
    let rank = i64::try_from(x.rank()).unwrap_or(i64::MAX);
    let from_front = if dim < 0 { dim.saturating_add(rank) } else { dim };
    match usize::try_from(from_front) {
        Ok(axis) if from_front < rank => Ok(axis),
        _ => Err(ConfigError::new("dim", format!("in -{rank}..{rank}"), dim).into()),
    }
}
