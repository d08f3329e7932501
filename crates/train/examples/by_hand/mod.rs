//! Training by hand: gradients and updates as two graphs, run by the interpreter.

use rewire_graph::op::Parameter;
use rewire_graph::{DType, Dim, Graph, HostTensor, InterpretError, Scope, Seed, differentiate, interpret};
use rewire_train::config::{Configured, DenseOptimizer, Scheduled};
use std::collections::{BTreeMap, HashMap};
use std::error::Error;

/// Tensors by name.
pub type Tensors = HashMap<String, HostTensor>;

/// Random numbers of a seed (Vigna, 2016).
pub struct Random(pub u64);

impl Random {
    /// At least 0 and below 1.
    pub fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// An integer below a number.
    pub fn below(&mut self, end: usize) -> usize {
        (self.unit() * end as f64) as usize
    }
}

/// A model whose output `loss` becomes small.
pub struct Trained {
    model: Graph,
    gradients: Graph,
    updates: BTreeMap<String, Graph>,
    optimizer: Scheduled<DenseOptimizer>,
    parameters: Tensors,
    /// What the optimizer keeps, by parameter and name.
    kept: BTreeMap<String, Tensors>,
    shared: Tensors,
    steps: u64,
}

impl Trained {
    /// Begins with random parameters: biases of 0, and others uniform by the width of their rows.
    pub fn new(model: Graph, optimizer: &str, seed: u64) -> Result<Self, Box<dyn Error>> {
        let optimizer: Scheduled<DenseOptimizer> = serde_json::from_str(optimizer)?;
        let built = optimizer.optimizer.build()?;
        let mut random = Random(seed);
        let (mut parameters, mut updates, mut kept) = (Tensors::new(), BTreeMap::new(), BTreeMap::new());
        for parameter in model.ids().filter_map(|id| model.op::<Parameter>(id)) {
            let shape: Vec<usize> = parameter.ty.shape.iter().filter_map(Dim::as_const).collect();
            let scale = if shape.len() == 1 { 0.0 } else { (shape[shape.len() - 1] as f64).sqrt().recip() };
            let values: Vec<f64> = (0..shape.iter().product()).map(|_| scale * (2.0 * random.unit() - 1.0)).collect();
            parameters.insert(parameter.name.clone(), HostTensor::from_f64(DType::F32, shape.clone(), &values)?);
            let zeros = built
                .moments()
                .into_iter()
                .map(|moment| Ok((moment.name.to_owned(), HostTensor::zeros(DType::F32, shape.clone())?)));
            kept.insert(parameter.name.clone(), zeros.collect::<Result<Tensors, Box<dyn Error>>>()?);
            updates.insert(parameter.name.clone(), update(&optimizer, &parameter.ty.shape)?);
        }
        let names: Vec<&str> = parameters.keys().map(String::as_str).collect();
        let gradients = differentiate(&model, &[("loss", Seed::One)], &names)?;
        let shared = built.shared().into_iter().map(|own| (own.name.to_owned(), HostTensor::vector(&[own.initial])));
        let shared = shared.collect();
        Ok(Self { model, gradients, updates, optimizer, parameters, kept, shared, steps: 0 })
    }

    /// Outputs of the model for a batch.
    pub fn outputs(&self, batch: &Tensors) -> Result<BTreeMap<String, HostTensor>, InterpretError> {
        interpret(&self.model, batch, &self.parameters)
    }

    /// The loss of a batch, after which parameters change.
    pub fn step(&mut self, batch: &Tensors) -> Result<f64, InterpretError> {
        let outputs = interpret(&self.gradients, batch, &self.parameters)?;
        let rate = HostTensor::vector(&[self.optimizer.rate(self.steps) as f32]);
        let mut shared = self.shared.clone();
        for (name, graph) in &self.updates {
            let mut inputs = self.shared.clone();
            inputs.extend(self.kept[name].clone());
            inputs.insert("rate".to_owned(), rate.clone());
            inputs.insert("parameter".to_owned(), self.parameters[name].clone());
            inputs.insert("gradient".to_owned(), outputs[&format!("grad.{name}")].clone());
            let mut after = interpret(graph, &inputs, &HashMap::new())?;
            self.parameters.extend(after.remove("parameter").map(|parameter| (name.clone(), parameter)));
            for (key, value) in after {
                let held =
                    if shared.contains_key(&key) { &mut shared } else { self.kept.entry(name.clone()).or_default() };
                held.insert(key, value);
            }
        }
        self.shared = shared;
        self.steps += 1;
        Ok(outputs["loss"].to_f64()[0])
    }
}

/// One update of a parameter.
fn update(optimizer: &Scheduled<DenseOptimizer>, shape: &[Dim]) -> Result<Graph, Box<dyn Error>> {
    let optimizer = optimizer.build()?;
    let scope = Scope::new();
    let [parameter, gradient] = ["parameter", "gradient"].map(|name| scope.input(name, DType::F32, shape));
    let rate = scope.input("rate", DType::F32, [1]);
    let (shared, moments) = (optimizer.shared(), optimizer.moments());
    let shared_names = shared.iter().map(|own| own.name);
    let names: Vec<&str> =
        ["parameter"].into_iter().chain(shared_names).chain(moments.iter().map(|own| own.name)).collect();
    let shared: Vec<_> = shared.iter().map(|own| scope.input(own.name, DType::F32, [1])).collect();
    let moments: Vec<_> = moments.iter().map(|own| scope.input(own.name, DType::F32, shape)).collect();
    let advanced = optimizer.advance(&shared);
    let updated = optimizer.update(&rate, &advanced, &parameter, &gradient, &moments);
    let values = [updated.parameter].into_iter().chain(advanced).chain(updated.moments);
    Ok(scope.finish(&names.into_iter().zip(values).collect::<Vec<_>>())?)
}
