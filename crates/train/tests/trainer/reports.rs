//! Results that are read late, in groups, equal results that are read after each step.

use rewire_graph::{DType, HostTensor, Scope};
use rewire_runtime::{Inputs, Kernel, ModelOptions};
use rewire_train::{Objective, Prepared, StepReport, TrainConfig, TrainError, Trainer};
use std::num::NonZeroU64;

fn trainer(keys: &str, rate: f64) -> Trainer {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, [scope.size("rows")]);
    let y = &x * scope.parameter("slope", DType::F32, [1]) + scope.parameter("offset", DType::F32, [1]);
    let (loss, mean) = ((&y - 2.0).square().mean(0), y.mean(0));
    let objective = Objective::new(scope.finish(&[("loss", loss), ("mean", mean), ("y", y)]).unwrap(), "loss");
    let config = format!(
        r#"{{ "batch_size": 2, "steps": 40, {keys} "dense_optimizer": {{ "sgd_optimizer": {{ "lr": {rate:?} }} }},
            "sparse_optimizer": {{ "sgd_optimizer": {{ "lr": 0.1 }} }} }}"#
    );
    let options = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    let begin = |name: &str| HostTensor::f32([1], &[if name == "slope" { 0.5 } else { -0.25 }]).ok();
    Trainer::new(&objective, &TrainConfig::from_json(&config).unwrap(), begin, options).unwrap()
}

/// The batches of a step; `first` replaces a value of the first batch.
fn batches(trainer: &Trainer, step: usize, first: Option<f32>) -> Prepared {
    let batch = |n: usize| {
        let x = [first.unwrap_or(0.5 + (step * 7 + n * 3) as f32 % 5.0 * 0.1), -0.25];
        Inputs::new().with("x", HostTensor::vector(&x))
    };
    let count = trainer.config().gradient_accumulation_steps.get();
    trainer.preparer().prepare((0..count).map(batch).collect()).unwrap()
}

#[test]
fn reports_come_in_groups_and_are_the_same() {
    for keys in ["", r#""gradient_accumulation_steps": 3,"#] {
        let mut waiting = trainer(keys, 0.05);
        let expected: Vec<StepReport> = (0..40)
            .map(|step| {
                let batches = batches(&waiting, step, None);
                waiting.step(batches).unwrap()
            })
            .collect();
        assert!(expected.iter().zip(1..).all(|(report, step)| report.step == step && report.outputs.len() == 2));
        assert!(expected[39].loss < expected[0].loss);
        for (every, sizes) in
            [(None, vec![(15, 16), (31, 16)]), (NonZeroU64::new(20), vec![(15, 16), (19, 4), (35, 16), (39, 4)])]
        {
            let mut late = trainer(keys, 0.05);
            every.into_iter().for_each(|every| late.report_every(every));
            let (mut reports, mut groups) = (vec![], vec![]);
            for step in 0..40 {
                let batches = batches(&late, step, None);
                let group = late.submit(batches).unwrap();
                groups.extend((!group.is_empty()).then_some((step, group.len())));
                reports.extend(group);
            }
            assert_eq!(groups, sizes);
            reports.extend(late.reports().unwrap());
            assert_eq!(reports, expected);
            assert_eq!(late.parameters().unwrap(), waiting.parameters().unwrap());
            assert!(late.reports().unwrap().is_empty());
        }
    }
}

#[test]
fn only_states_and_losses_leave_a_step() {
    let trainer = trainer("", 0.05);
    let (plan, states) = (trainer.plan(), trainer.plan().states());
    let outputs: Vec<&str> = plan.outputs.iter().map(|output| output.name.as_str()).collect();
    assert!(outputs.iter().all(|name| states.contains_key(name)), "{outputs:?}");
    assert_eq!(trainer.states().unwrap().keys().collect::<Vec<_>>(), ["offset", "slope"]);
}

#[test]
fn a_loss_that_is_no_number_is_found_late_with_its_step() {
    let mut trainer = trainer("", 0.05);
    let mut told = vec![];
    let failed = (0..40).find_map(|step| {
        let batches = batches(&trainer, step, (step == 4).then_some(f32::INFINITY));
        match trainer.submit(batches) {
            Ok(reports) => {
                told.extend(reports);
                None
            }
            Err(error) => Some((step, error)),
        }
    });
    assert_eq!(told.iter().map(|report| report.step).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let Some((16, TrainError::Diverged { step: 5, loss, parameter: Some(_) })) = failed else { panic!("{failed:?}") };
    assert!(!loss.is_finite());
}

#[test]
fn a_parameter_may_go_bad_while_the_loss_is_a_number() {
    let mut trainer = trainer("", 3e38);
    let batches = batches(&trainer, 0, Some(100.0));
    let loss = trainer.step(batches).unwrap().loss;
    let error = trainer.check_parameters().unwrap_err().to_string();
    let expected = format!("step 1 left `slope` with elements that are not finite, though the loss was {loss} still");
    assert!(error.starts_with(&expected), "{error}");
}

#[test]
fn a_profile_has_the_kernels_of_a_step_and_changes_no_result() {
    let (mut plain, mut timed) = (trainer("", 0.05), trainer("", 0.05));
    assert!(timed.profile().is_none());
    timed.record_profile();
    assert!(timed.profile().is_none());
    for step in 0..3 {
        let (own, expected) = (batches(&timed, step, None), batches(&plain, step, None));
        assert_eq!(timed.step(own).unwrap(), plain.step(expected).unwrap());
    }
    let (profile, counts) = timed.profile().unwrap();
    let mut kernels: Vec<usize> = profile.spans.iter().filter_map(|span| span.step).collect();
    kernels.sort_unstable();
    assert_eq!(kernels, (0..timed.plan().steps.len()).collect::<Vec<_>>());
    assert_eq!(counts.len(), kernels.len());
    assert!(plain.profile().is_none());
}
