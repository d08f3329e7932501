//! Kernel choice by operator and module.

use crate::{Kernel, ParseKernelError, RuntimeError};
use rewire_graph::{Ordered, nearest_names};
use rewire_graph_rewrite::plan::{BufferId, Step};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Number of similar names in the error for a pattern without a match.
const LISTED: usize = 6;

/// The kernel choice for steps of certain operators or modules, instead of the model's.
///
/// The pattern is compared with the name of a step's operator, such as `attention`, and with its module names, such as
/// `_stu_layers.0` in `_hstu_transducer._stu_module._stu_layers.0`. `*` matches any string. Leading underscores of
/// names may be omitted.
///
/// ```
/// use rewire_runtime::{Kernel, KernelRule};
/// let rule: KernelRule = "stu*=cpu".parse()?;
/// assert_eq!((rule.pattern.as_str(), rule.kernel), ("stu*", Kernel::Cpu));
/// # Ok::<(), rewire_runtime::ParseKernelRuleError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRule {
    /// The pattern.
    pub pattern: String,
    /// The kernel for matching steps.
    pub kernel: Kernel,
}

/// The string is not a [`KernelRule`].
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ParseKernelRuleError {
    /// It does not consist of two parts.
    #[error("expected PATTERN=KERNEL, such as stu*=cpu, got `{0}`")]
    Form(String),
    /// The second part is not the name of a kernel.
    #[error(transparent)]
    Kernel(#[from] ParseKernelError),
}

impl FromStr for KernelRule {
    type Err = ParseKernelRuleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.rsplit_once('=') {
            Some((pattern, kernel)) if !pattern.is_empty() => {
                Ok(Self { pattern: pattern.to_owned(), kernel: kernel.parse()? })
            }
            _ => Err(ParseKernelRuleError::Form(text.to_owned())),
        }
    }
}

impl fmt::Display for KernelRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.pattern, self.kernel)
    }
}

impl KernelRule {
    /// The rule of each step; `None` for steps without one. If several match a step, the last one applies.
    ///
    /// # Errors
    /// [`RuntimeError::KernelRule`] names a pattern that matches no step, and similar names.
    pub fn of_steps<'a>(rules: &'a [Self], steps: &[Step]) -> Result<Vec<Option<&'a Self>>, RuntimeError> {
        if let Some(rule) = rules.iter().find(|rule| !steps.iter().any(|step| rule.matches(step))) {
            let names: BTreeSet<String> = steps.iter().flat_map(names).ordered_set();
            let nearest = nearest_names(&rule.pattern, names.iter().map(String::as_str));
            let near = nearest.into_iter().take(LISTED).map(str::to_owned).collect();
            return Err(RuntimeError::KernelRule { pattern: rule.pattern.clone(), near });
        }
        Ok(steps.iter().map(|step| rules.iter().rfind(|rule| rule.matches(step))).collect())
    }

    /// The kernel choice that determines the device, given a kernel and the rules.
    pub fn device(kernel: Kernel, rules: &[Self]) -> Kernel {
        let all = || rules.iter().map(|rule| rule.kernel).chain([kernel]);
        [Kernel::Wgpu, Kernel::Auto].into_iter().find(|wanted| all().any(|own| own == *wanted)).unwrap_or(Kernel::Cpu)
    }

    fn matches(&self, step: &Step) -> bool {
        let pattern = plain(&self.pattern);
        names(step).any(|name| is_like(&pattern, &name))
    }
}

/// The names that a pattern is compared with: the operator, and all contiguous parts of the module path.
fn names(step: &Step) -> impl Iterator<Item = String> {
    let modules: Vec<String> = step.path.split('.').filter(|name| !name.is_empty()).map(plain).collect();
    let runs = (0..modules.len()).flat_map(|from| (from + 1..=modules.len()).map(move |to| (from, to)));
    let runs: Vec<String> = runs.map(|(from, to)| modules[from..to].join(".")).collect();
    [step.name.clone()].into_iter().chain(runs)
}

/// Module names without leading underscores.
fn plain(path: &str) -> String {
    path.split('.').map(|name| name.trim_start_matches('_')).collect::<Vec<_>>().join(".")
}

/// True if a string matches a pattern, in which `*` matches any string.
fn is_like(pattern: &str, text: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(begin) else { return false };
    text.char_indices().map(|(at, _)| at).chain([text.len()]).any(|at| is_like(rest, &text[at..]))
}

/// Tensors that move between the device and the host before a step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The first step that needs them.
    pub step: usize,
    /// True if they move to the device, false if to the host.
    pub to_device: bool,
    /// The tensors, all of them results of earlier steps.
    pub tensors: Vec<BufferId>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use rewire_graph::{DType, Scope, Tensor};
    use rewire_graph_rewrite::plan::Plan;
    use rewire_graph_rewrite::{lower, optimize};

    fn plan() -> Plan {
        let scope = Scope::new();
        let x = scope.input("x", DType::F32, (scope.size("rows"), 6));
        let layer = |name: &str, x: &Tensor| {
            let product = |scope: &Scope| x.matmul(&scope.parameter("weight", DType::F32, [6, 6]));
            scope.module("_stu_layers", |scope| scope.module(name, product))
        };
        let y = layer("1", &layer("0", &x));
        lower(&optimize(scope.finish(&[("y", y.silu())]).unwrap()).unwrap().0).unwrap()
    }

    #[test]
    fn patterns_name_operators_and_modules() {
        for (pattern, path, name, matches) in [
            ("stu*", "_hstu._stu_module._stu_layers.0", "addmm", true),
            ("_stu*", "_hstu._stu_module", "addmm", true),
            ("stu_layers.0", "_hstu._stu_module._stu_layers.0", "addmm", true),
            ("stu_layers.0", "_hstu._stu_module._stu_layers.01", "addmm", false),
            ("hstu.*.0", "_hstu._stu_module._stu_layers.0._mlp", "addmm", true),
            ("stu", "_hstu._stu_module", "addmm", false),
            ("layer_norm*", "_mlp.0", "layer_norm_addmm", true),
            ("addmm", "_mlp.0", "layer_norm_addmm", false),
            ("*addmm", "", "layer_norm_addmm", true),
            ("*", "", "pointwise", true),
        ] {
            let step = Step { name: name.to_owned(), path: path.to_owned(), ..plan().steps[0].clone() };
            let rule = KernelRule { pattern: pattern.to_owned(), kernel: Kernel::Cpu };
            assert_eq!(rule.matches(&step), matches, "{pattern} of {name} in {path}");
        }
    }

    #[test]
    fn the_last_rule_counts_and_each_matches_something() {
        let plan = plan();
        let rules = ["*=wgpu", "stu_layers.1=cpu"].map(|text| text.parse::<KernelRule>().unwrap());
        let found = KernelRule::of_steps(&rules, &plan.steps).unwrap();
        let kernels: Vec<Kernel> = found.iter().map(|rule| rule.unwrap().kernel).collect();
        let expected = plan.steps.iter().map(|step| if step.path.ends_with(".1") { Kernel::Cpu } else { Kernel::Wgpu });
        assert_eq!(kernels, expected.collect::<Vec<_>>());
        assert!(kernels.contains(&Kernel::Cpu) && kernels.contains(&Kernel::Wgpu));
        let wrong = ["stu_layer.1=cpu".parse::<KernelRule>().unwrap()];
        let error = KernelRule::of_steps(&wrong, &plan.steps).unwrap_err().to_string();
        assert!(error.contains("`stu_layer.1`") && error.contains("`stu_layers.1`"), "{error}");
    }

    #[test]
    fn a_device_is_opened_for_what_asks_for_most() {
        use Kernel::{Auto, Cpu, Wgpu};
        let device = |kernel, rules: &[Kernel]| {
            let rule = |kernel: &Kernel| KernelRule { pattern: "x".to_owned(), kernel: *kernel };
            KernelRule::device(kernel, &rules.iter().map(rule).collect::<Vec<_>>())
        };
        assert_eq!([device(Cpu, &[]), device(Cpu, &[Cpu, Wgpu]), device(Wgpu, &[Cpu])], [Cpu, Wgpu, Wgpu]);
        assert_eq!([device(Auto, &[Cpu]), device(Cpu, &[Auto]), device(Auto, &[Wgpu])], [Auto, Auto, Wgpu]);
        assert!(matches!("stu*".parse::<KernelRule>(), Err(ParseKernelRuleError::Form(_))));
        assert!(matches!("=cpu".parse::<KernelRule>(), Err(ParseKernelRuleError::Form(_))));
        assert_eq!(
            "a=gpu".parse::<KernelRule>().unwrap_err().to_string(),
            Kernel::from_str("gpu").unwrap_err().to_string()
        );
    }
}
