use super::limits::check_form;
use super::{Accumulation, Axis, Body, Nest, Output};
use crate::error::NotLowerable;
use crate::schedule::{Analysis, Schedule};
use serde::{Deserialize, Serialize};
use std::ops::Deref;

/// A nest with its schedule.
///
/// It is stored as the nest and the name of the schedule. The roles of axes and accumulations are derived when it is
/// read, so that a file cannot contradict its nest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "Stored", try_from = "Stored")]
pub struct ScheduledNest {
    nest: Nest,
    schedule: Schedule,
}

impl ScheduledNest {
    /// Chooses the schedule of a nest.
    ///
    /// # Errors
    /// [`NotLowerable`] if the nest is inconsistent, or no schedule supports it.
    pub fn of(nest: Nest) -> Result<Self, NotLowerable> {
        check_form(&nest)?;
        let schedule = Schedule::of(&nest)?;
        Ok(Self { nest, schedule })
    }

    /// Its schedule.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// The nest, without its schedule.
    pub fn into_nest(self) -> Nest {
        self.nest
    }

    /// Changes the nest and chooses its schedule again.
    ///
    /// # Errors
    /// As [`ScheduledNest::of`]; the nest is then unchanged.
    pub fn edit<T>(&mut self, edit: impl FnOnce(&mut Nest) -> T) -> Result<T, NotLowerable> {
        let mut nest = self.nest.clone();
        let result = edit(&mut nest);
        *self = Self::of(nest)?;
        Ok(result)
    }

    /// The nest, to change dtypes, memory spaces and functions. Schedules do not depend on these. Ids of expressions
    /// and positions of axes must not change.
    pub(crate) fn nest_mut(&mut self) -> &mut Nest {
        &mut self.nest
    }

    /// Calls a function with the schedule bound to its nest.
    pub(crate) fn scheduled<T>(&self, call: impl FnOnce(&dyn Analysis) -> T) -> T {
        self.schedule.bound(&self.nest, call)
    }
}

impl Deref for ScheduledNest {
    type Target = Nest;

    fn deref(&self) -> &Nest {
        &self.nest
    }
}

/// The serialised form. Plans of formats 1 to 3 have no schedule.
#[derive(Serialize, Deserialize)]
struct Stored {
    body: Body,
    axes: Vec<Axis>,
    accumulations: Vec<Accumulation>,
    outputs: Vec<Output>,
    #[serde(default)]
    schedule: Option<String>,
}

impl From<ScheduledNest> for Stored {
    fn from(kernel: ScheduledNest) -> Self {
        let Nest { body, axes, accumulations, outputs } = kernel.nest;
        Self { body, axes, accumulations, outputs, schedule: Some(kernel.schedule.name().to_owned()) }
    }
}

impl TryFrom<Stored> for ScheduledNest {
    type Error = NotLowerable;

    fn try_from(stored: Stored) -> Result<Self, NotLowerable> {
        let Stored { body, axes, accumulations, outputs, schedule } = stored;
        let nest = Nest { body, axes, accumulations, outputs };
        let Some(name) = schedule else { return Self::of(nest) };
        check_form(&nest)?;
        let schedule = Schedule::named(&name, &nest)?;
        Ok(Self { nest, schedule })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Computation, MemorySpace};
    use crate::{lower, optimize};
    use rewire_graph::limits::{MAX_AXES, MAX_VALUES};
    use rewire_graph::{DType, Dim, Scope};
    use serde_json::{Value, json};

    /// `x * x` of `[8, 4]`, serialised.
    fn stored() -> Value {
        let shape: Vec<Dim> = vec![8.into(), 4.into()];
        let operand = crate::plan::Operand { dtype: DType::F32, shape: shape.clone(), space: MemorySpace::Device };
        let mut body = Body { operands: vec![operand], ..Body::default() };
        let index = vec![body.dag.coord(0, Some(8)), body.dag.coord(1, Some(4))];
        let value = body.dag.load(0, DType::F32, index.clone());
        let output = Output { target: 0, dtype: DType::F32, shape: shape.clone(), index, value, columns: None };
        serde_json::to_value(ScheduledNest::of(Nest::map(body, shape, vec![output])).unwrap()).unwrap()
    }

    fn read(stored: Value) -> Result<ScheduledNest, String> {
        serde_json::from_value(stored).map_err(|error| error.to_string())
    }

    #[test]
    fn a_stored_schedule_is_checked_against_its_nest() {
        let plain = stored();
        assert_eq!(plain["schedule"], "map");
        let expected = read(plain.clone()).unwrap();
        let with = |name: Value| {
            let mut other = plain.clone();
            other["schedule"] = name;
            read(other)
        };
        assert_eq!(with(Value::Null).unwrap(), expected, "a plan of an earlier format");
        assert_eq!(with(json!("spiral")).unwrap_err(), "there is no schedule `spiral`");
        for name in ["reduction", "product", "pairs", "fold"] {
            let result = with(json!(name)).map(|own| own.schedule().name());
            assert!(result.is_err() || result == Ok(name), "{name}: {result:?}");
        }
        assert!(with(json!("product")).is_err());
        let mut beyond = plain.clone();
        beyond["outputs"][0]["value"] = json!(99);
        assert!(read(beyond).unwrap_err().starts_with("refers to expression 99"));
    }

    #[test]
    fn a_nest_has_an_axis_less_than_there_are_coordinates() {
        let with = |axes: usize| {
            let mut other = stored();
            let more = serde_json::to_value(Axis::sum(crate::plan::Extent::Dense(3.into()))).unwrap();
            other["axes"].as_array_mut().unwrap().resize(axes, more);
            read(other).unwrap_err()
        };
        let refused = |axes: usize| format!("has {axes} axes, more than {MAX_AXES}");
        assert_eq!(MAX_AXES, MAX_VALUES - 1);
        assert_eq!(with(MAX_VALUES), refused(MAX_VALUES));
        assert_ne!(with(MAX_AXES), refused(MAX_AXES));
    }

    #[test]
    fn attention_of_earlier_plans_is_a_sum_over_pairs() {
        let scope = Scope::new();
        let [q, k, v] = ["q", "k", "v"].map(|name| scope.input(name, DType::F32, &[scope.size("rows"), 8.into()]));
        let y = q.matmul(&k.transpose(0, 1)).softmax(1).matmul(&v);
        let plan = lower(&optimize(scope.finish(&[("y", y)]).unwrap()).unwrap().0).unwrap();
        let [step] = plan.steps.as_slice() else { panic!("{plan:?}") };
        let stored = serde_json::to_string(&step.computation).unwrap();
        let earlier = stored.replace("\"schedule\":\"pairs\"", "\"schedule\":\"attention\"");
        assert_ne!(stored, earlier);
        assert_eq!(serde_json::from_str::<Computation>(&earlier).unwrap(), step.computation);
    }
}
