use rewire_graph::{DType, Dim, Graph, HostTensor, Scope, interpret};
use rewire_train::config::{DenseOptimizer, Scheduled, SparseOptimizer};
use rewire_train::{Moment, Optimizer};
use std::collections::{BTreeMap, HashMap};

/// A run of an optimizer with random parameters and gradients.
pub struct Trial {
    pub optimizer: Optimizer,
    pub shape: Vec<usize>,
    pub steps: usize,
    pub seed: u64,
}

/// A reference loop. Arguments: parameters, gradients, rate, number of the step from 1, and the loop's state.
pub type Loop<'a> = dyn FnMut(&mut [f64], &[f64], f64, i32, &mut Vec<Vec<f64>>) + 'a;

pub fn dense_optimizer(config: &str) -> Scheduled<DenseOptimizer> {
    serde_json::from_str(config).unwrap()
}

pub fn table_optimizer(config: &str) -> Scheduled<SparseOptimizer> {
    serde_json::from_str(config).unwrap()
}

/// Random numbers of many magnitudes and both signs, with a mean above 0.
pub fn random(len: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..len).map(|_| f64::from(((next() * 2.6 - 1.1) * 10f64.powf(next() * 3.0 - 2.0)) as f32)).collect()
}

impl Trial {
    fn graph(&self) -> Graph {
        let scope = Scope::new();
        let shape: Vec<Dim> = self.shape.iter().map(|&extent| extent.into()).collect();
        let rate = scope.input("rate", DType::F32, [1]);
        let [parameter, gradient] = ["w", "g"].map(|name| scope.input(name, DType::F32, &shape));
        let state = |kind: &str, moment: &Moment, shape: &[Dim]| {
            scope.input(
                &format!("{kind}.{}", moment.name),
                DType::F32,
                &shape[..shape.len() - usize::from(moment.rows)],
            )
        };
        let shared: Vec<_> = self.optimizer.shared().iter().map(|own| state("shared", own, &[1.into()])).collect();
        let moments: Vec<_> = self.optimizer.moments().iter().map(|own| state("moment", own, &shape)).collect();
        let advanced = self.optimizer.advance(&shared);
        let updated = self.optimizer.update(&rate, &advanced, &parameter, &gradient, &moments);
        assert_eq!(updated.parameter.shape(), parameter.shape());
        let names = self.names();
        let outputs = [updated.parameter].into_iter().chain(advanced).chain(updated.moments);
        let outputs: Vec<_> = names.iter().map(String::as_str).zip(outputs).collect();
        scope.finish(&outputs).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let shared = self.optimizer.shared().into_iter().map(|own| format!("shared.{}", own.name));
        let moments = self.optimizer.moments().into_iter().map(|own| format!("moment.{}", own.name));
        ["w".to_owned()].into_iter().chain(shared).chain(moments).collect()
    }

    fn held(&self) -> HashMap<String, HostTensor> {
        let full = |moment: Moment, shape: &[usize]| {
            let shape = &shape[..shape.len() - usize::from(moment.rows)];
            HostTensor::f32(shape, &vec![moment.initial; shape.iter().product()]).unwrap()
        };
        let shared = self.optimizer.shared().into_iter().map(|own| (format!("shared.{}", own.name), full(own, &[1])));
        let moments = self.optimizer.moments().into_iter();
        let moments = moments.map(|own| (format!("moment.{}", own.name), full(own, &self.shape)));
        shared.chain(moments).chain([("w".to_owned(), self.tensor(0))]).collect()
    }

    /// The parameters for step 0, else the gradients of a step.
    fn tensor(&self, step: usize) -> HostTensor {
        let values = random(self.shape.iter().product(), self.seed + 1000 * step as u64);
        HostTensor::from_f64(DType::F32, self.shape.clone(), &values).unwrap()
    }

    fn rate(step: usize) -> f64 {
        f64::from(0.3f32 / (1 + step) as f32)
    }

    /// The values after all steps.
    pub fn run(&self) -> BTreeMap<String, HostTensor> {
        self.trace().pop().unwrap()
    }

    /// The values after every step.
    fn trace(&self) -> Vec<BTreeMap<String, HostTensor>> {
        let (graph, mut held) = (self.graph(), self.held());
        let mut trace = vec![];
        for step in 1..=self.steps {
            held.insert("rate".to_owned(), HostTensor::vector(&[Self::rate(step) as f32]));
            held.insert("g".to_owned(), self.tensor(step));
            let after = interpret(&graph, &held, &HashMap::new()).unwrap();
            held.extend(after.clone());
            trace.push(after);
        }
        trace
    }

    /// Compares the parameters after every step with a reference loop.
    pub fn compare(&self, mut reference: impl FnMut(&mut [f64], &[f64], f64, i32, &mut Vec<Vec<f64>>)) {
        let reference: &mut Loop<'_> = &mut reference;
        let (mut expected, mut kept) = (self.tensor(0).to_f64(), vec![]);
        let start = expected.clone();
        for (step, held) in (1..).zip(self.trace()) {
            let gradient = self.tensor(step).to_f64();
            reference(&mut expected, &gradient, Self::rate(step), step as i32, &mut kept);
            for (at, (actual, expected)) in held["w"].to_f64().iter().zip(&expected).enumerate() {
                let near = (actual - expected).abs() <= 3e-6 * (1.0 + expected.abs());
                assert!(near, "step {step}, element {at}: expected {expected}, got {actual}");
            }
        }
        let moved = start.iter().zip(&expected).any(|(start, end)| (start - end).abs() > 1e-3);
        assert!(moved || start.is_empty(), "nothing moved");
    }
}
