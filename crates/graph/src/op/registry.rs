use super::custom::Operator;
use super::{Bits, IntegerProduct, MergeRuns, Op, OrthogonalColumns, QuantizedProduct, Recurrence, SortRuns};
use crate::pointwise::{Function, ScalarFunction};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

type Make<T> = Arc<dyn Fn(&Value) -> Result<T, String> + Send + Sync>;

/// Restores user-defined functions and custom operators, by name, in a plan read from a file.
///
/// A plan stores their names, attributes and WGSL. The CPU form is code and comes from the registry. Plans made in the
/// same process already have it.
#[derive(Clone, Default)]
pub struct Registry {
    functions: BTreeMap<String, Make<Function>>,
    operators: BTreeMap<String, Make<Operator>>,
}

/// Why functions and operators of a plan cannot be restored.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegistryError {
    /// The name is not registered.
    #[error(
        "the {kind} `{name}` with attributes {attributes} is not registered (the registry has {known}): add its type with \
         `Registry::with_{kind}`"
    )]
    Missing {
        /// `function` or `operator`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Its attributes as JSON.
        attributes: String,
        /// The registered names.
        known: String,
    },
    /// The registered type cannot be deserialised from the attributes.
    #[error("the registered {kind} `{name}` does not accept the attributes {attributes}: {reason}")]
    Attributes {
        /// `function` or `operator`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// The attributes as JSON.
        attributes: String,
        /// Why.
        reason: String,
    },
    /// The WGSL in the plan differs from that of the registered type.
    #[error("the {kind} `{name}` with attributes {attributes} differs from the one in the plan: lower the graph again")]
    Different {
        /// `function` or `operator`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Its attributes as JSON.
        attributes: String,
    },
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a type of functions, which is deserialised from its attributes.
    #[must_use]
    pub fn with_function<F: ScalarFunction + DeserializeOwned>(mut self, name: &str) -> Self {
        let make = |attributes: &Value| match serde_json::from_value::<F>(attributes.clone()) {
            Ok(function) => Ok(Function::new(Arc::new(function))),
            Err(error) => Err(error.to_string()),
        };
        self.functions.insert(name.to_owned(), Arc::new(make));
        self
    }

    /// Registers a type of operators with custom kernels, which is deserialised from its attributes.
    #[must_use]
    pub fn with_operator<O: Op + DeserializeOwned>(mut self, name: &str) -> Self {
        let make = |attributes: &Value| match serde_json::from_value::<O>(attributes.clone()) {
            Ok(operator) if operator.custom().is_some() => Ok(Operator::of(operator)),
            Ok(_) => Err("it has no custom kernel".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        self.operators.insert(name.to_owned(), Arc::new(make));
        self
    }

    /// A function with its CPU form.
    ///
    /// # Errors
    /// [`RegistryError`] if it is not registered, or differs from the registered one.
    pub fn function(&self, stored: &Function) -> Result<Arc<Function>, RegistryError> {
        let made = make("function", &self.functions, stored.name(), stored.attributes())?;
        let different = || RegistryError::different("function", stored.name(), stored.attributes());
        if made == *stored { Ok(Arc::new(made)) } else { Err(different()) }
    }

    /// An operator with its CPU form: a registered one, or one of the importers.
    ///
    /// # Errors
    /// [`RegistryError`] if it is not registered, or differs from the registered one.
    pub fn operator(&self, stored: &Operator) -> Result<Operator, RegistryError> {
        let own = Self::new()
            .with_operator::<IntegerProduct>(IntegerProduct::NAME)
            .with_operator::<QuantizedProduct>(QuantizedProduct::NAME)
            .with_operator::<Recurrence>(Recurrence::NAME)
            .with_operator::<SortRuns>(SortRuns::NAME)
            .with_operator::<MergeRuns>(MergeRuns::NAME)
            .with_operator::<OrthogonalColumns>(OrthogonalColumns::NAME)
            .with_operator::<Bits>(Bits::NAME);
        let registry = if own.operators.contains_key(stored.name()) { &own } else { self };
        let made = make("operator", &registry.operators, stored.name(), stored.attributes())?;
        let different = || RegistryError::different("operator", stored.name(), stored.attributes());
        if made == *stored { Ok(made) } else { Err(different()) }
    }
}

fn make<T>(
    kind: &'static str,
    makers: &BTreeMap<String, Make<T>>,
    name: &str,
    attributes: &Value,
) -> Result<T, RegistryError> {
    let (owned, text) = (name.to_owned(), attributes.to_string());
    let Some(make) = makers.get(name) else {
        let known: Vec<&str> = makers.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(RegistryError::Missing { kind, name: owned, attributes: text, known });
    };
    make(attributes).map_err(|reason| RegistryError::Attributes { kind, name: owned, attributes: text, reason })
}

impl RegistryError {
    /// The error for a registered type that differs from the one in the plan.
    pub fn different(kind: &'static str, name: &str, attributes: &Value) -> Self {
        Self::Different { kind, name: name.to_owned(), attributes: attributes.to_string() }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (functions, operators) = (self.functions.keys(), self.operators.keys());
        f.debug_struct("Registry").field("functions", &functions).field("operators", &operators).finish()
    }
}
