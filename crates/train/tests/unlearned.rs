//! Parameters that the loss does not depend on keep their initial values.
#![allow(clippy::unwrap_used)]

use rewire_graph::{DType, HostTensor, Scope};
use rewire_runtime::{Inputs, Kernel, ModelOptions};
use rewire_train::{Objective, TrainConfig, Trainer};

const VALUES: [(&str, f32); 4] = [("learned", 0.5), ("detached", 3.0), ("unread", -2.5), ("frozen", 7.0)];

#[test]
fn they_are_what_they_began_with() {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, [scope.size("rows")]);
    let [learned, detached, _, frozen] = VALUES.map(|(name, _)| scope.parameter(name, DType::F32, [1]));
    let loss = (x * learned + detached.detach() + frozen).square().mean(0);
    let objective = Objective::new(scope.finish(&[("loss", loss)]).unwrap(), "loss").frozen(["frozen"]);
    let config = r#"{ "batch_size": 1, "steps": 1, "dense_optimizer": { "adamw_optimizer": { "lr": 0.1, "weight_decay": 0.5 } },
        "sparse_optimizer": { "sgd_optimizer": { "lr": 0.1 } } }"#;
    let begin = |name: &str| {
        let value = VALUES.iter().find(|(own, _)| *own == name)?.1;
        HostTensor::f32([1], &[value]).ok()
    };
    let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    let mut trainer = Trainer::new(&objective, &TrainConfig::from_json(config).unwrap(), begin, options).unwrap();
    let batch = Inputs::new().with("x", HostTensor::vector(&[2.0f32]));
    let report = trainer.step(trainer.preparer().prepare(vec![batch]).unwrap()).unwrap();
    assert_eq!(report.loss, 121.0);
    let after = trainer.parameters().unwrap();
    for (name, before) in VALUES {
        let is_same = after[name].to_f32() == [before];
        assert_eq!(is_same, name != "learned", "{name}: {:?}", after[name].to_f32());
    }
}
