use rewire_graph::{DType, HostTensor, Scope, Seed, Tensor, differentiate, interpret};
use std::collections::{BTreeMap, HashMap};

/// Numbers of both signs, more of one than of the other.
pub fn random(len: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        f64::from(((state >> 11) as f64 / (1u64 << 53) as f64 * 3.1 - 1.2) as f32)
    };
    (0..len).map(|_| next()).collect()
}

/// Traced inputs by name.
pub type Inputs<'a> = BTreeMap<&'a str, Tensor>;

/// Elements of inputs by name.
pub type Values<'a> = BTreeMap<&'a str, Vec<f64>>;

type Trace<'a> = dyn Fn(&Scope, &Inputs<'_>) -> Tensor + 'a;
type Reference<'a> = dyn Fn(&Values<'_>) -> f64 + 'a;

/// A scalar function of inputs, traced and as a loop.
pub struct Check<'a> {
    pub inputs: Vec<(&'a str, HostTensor)>,
    /// Inputs whose gradients are compared.
    pub wanted: &'a [&'a str],
    pub trace: &'a Trace<'a>,
    pub reference: &'a Reference<'a>,
}

impl Check<'_> {
    /// Compares values and gradients.
    pub fn run(&self) {
        let values: Values<'_> = self.inputs.iter().map(|(name, x)| (*name, x.to_f64())).collect();
        let outputs = self.outputs();
        let expected = (self.reference)(&values);
        assert_near("the loss", outputs["loss"].to_f64()[0], expected);
        for name in self.wanted {
            let gradient = outputs[&format!("grad.{name}")].to_f64();
            assert_eq!(gradient.len(), values[name].len());
            for (at, actual) in gradient.iter().enumerate() {
                let step = 1e-4 * (1.0 + values[name][at].abs());
                let moved = |by: f64| {
                    let mut values = values.clone();
                    values.get_mut(name).unwrap()[at] += by;
                    (self.reference)(&values)
                };
                // An error of the fourth order.
                let slope =
                    (8.0 * (moved(step) - moved(-step)) - (moved(2.0 * step) - moved(-2.0 * step))) / (12.0 * step);
                assert_near(&format!("the gradient of {name}[{at}]"), *actual, slope);
            }
        }
    }

    /// The loss and its gradients.
    pub fn outputs(&self) -> BTreeMap<String, HostTensor> {
        let scope = Scope::new();
        let inputs = self.inputs.iter().map(|(name, x)| {
            let shape = x.shape().iter().enumerate().map(|(axis, &n)| match axis {
                0 => scope.size(&format!("rows of {}", rows(name))),
                _ => n.into(),
            });
            (*name, scope.input(name, x.dtype(), shape.collect::<Vec<_>>()))
        });
        let inputs: Inputs<'_> = inputs.collect();
        let loss = (self.trace)(&scope, &inputs);
        let graph = scope.finish(&[("loss", loss)]).unwrap();
        let graph = differentiate(&graph, &[("loss", Seed::One)], self.wanted).unwrap();
        let given: HashMap<String, HostTensor> =
            self.inputs.iter().map(|(name, x)| ((*name).to_owned(), x.clone())).collect();
        interpret(&graph, &given, &HashMap::new()).unwrap()
    }
}

/// Inputs of one number of rows have names that begin alike, `users`, `users.weights`.
fn rows(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

pub fn assert_near(what: &str, actual: f64, expected: f64) {
    assert!((actual - expected).abs() <= 2e-6 * (1.0 + expected.abs()), "{what}: expected {expected}, got {actual}");
}

pub fn tensor(shape: &[usize], values: &[f64]) -> HostTensor {
    HostTensor::from_f64(DType::F32, shape.to_vec(), values).unwrap()
}
