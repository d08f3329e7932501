//! The JSON schema of exported programs, version 8 of torch.export. Unknown fields are ignored.

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny};
use std::collections::BTreeMap;

/// The supported major version.
pub(crate) const SCHEMA_MAJOR: u64 = 8;

#[derive(Deserialize)]
pub(crate) struct Program {
    pub graph_module: GraphModule,
    #[serde(default)]
    pub range_constraints: BTreeMap<String, Range>,
}

#[derive(Deserialize)]
pub(crate) struct SchemaVersion {
    pub major: u64,
    pub minor: u64,
}

#[derive(Clone, Copy, Deserialize)]
pub(crate) struct Range {
    pub min_val: Option<i64>,
    pub max_val: Option<i64>,
}

#[derive(Deserialize)]
pub(crate) struct GraphModule {
    pub graph: Graph,
    pub signature: Signature,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Graph {
    pub inputs: Vec<Argument>,
    pub outputs: Vec<Argument>,
    pub nodes: Vec<Node>,
    pub tensor_values: BTreeMap<String, TensorMeta>,
    #[serde(default)]
    pub sym_int_values: BTreeMap<String, SymInt>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Node {
    pub target: String,
    pub inputs: Vec<NamedArgument>,
    pub outputs: Vec<Argument>,
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct NamedArgument {
    pub name: String,
    pub arg: Argument,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct TensorMeta {
    pub dtype: u64,
    pub sizes: Vec<SymInt>,
    pub strides: Vec<SymInt>,
    pub storage_offset: SymInt,
    pub layout: u64,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SymInt {
    AsInt(i64),
    AsExpr(Expr),
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Expr {
    pub expr_str: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Name {
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(clippy::enum_variant_names, reason = "the names of the format")]
pub(crate) enum SymArgument {
    AsName(String),
    AsInt(i64),
    AsFloat(Float),
    AsBool(bool),
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OptionalTensor {
    AsTensor(Name),
    AsNone(bool),
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct SubGraph {
    pub graph: Graph,
}

/// A float; infinities and NaN are strings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Float(pub f64);

impl<'de> Deserialize<'de> for Float {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::Number(number) => {
                number.as_f64().map(Self).ok_or_else(|| D::Error::custom("a float beyond double precision"))
            }
            serde_json::Value::String(text) => match text.as_str() {
                "Infinity" => Ok(Self(f64::INFINITY)),
                "-Infinity" => Ok(Self(f64::NEG_INFINITY)),
                "NaN" => Ok(Self(f64::NAN)),
                other => Err(D::Error::custom(format!("no float: `{other}`"))),
            },
            other => Err(D::Error::custom(format!("no float: {other}"))),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(clippy::enum_variant_names, reason = "the names of the format")]
pub(crate) enum Argument {
    AsNone(bool),
    AsTensor(Name),
    AsTensors(Vec<Name>),
    AsOptionalTensor(OptionalTensor),
    AsOptionalTensors(Vec<OptionalTensor>),
    AsNestedTensors(Vec<Vec<Name>>),
    AsInt(i64),
    AsInts(Vec<i64>),
    AsFloat(Float),
    AsFloats(Vec<Float>),
    AsBool(bool),
    AsBools(Vec<bool>),
    AsString(String),
    AsStrings(Vec<String>),
    AsComplex(serde_json::Value),
    AsIntLists(Vec<Vec<i64>>),
    AsFloatLists(Vec<Vec<Float>>),
    AsSymInt(SymArgument),
    AsSymInts(Vec<SymArgument>),
    AsSymFloat(SymArgument),
    AsSymFloats(Vec<SymArgument>),
    AsSymBool(SymArgument),
    AsSymBools(Vec<SymArgument>),
    AsScalarType(u64),
    AsMemoryFormat(u64),
    AsLayout(u64),
    AsDevice(serde_json::Value),
    AsGraph(SubGraph),
    AsCustomObj(serde_json::Value),
    AsOperator(String),
    AsStringToArgument(BTreeMap<String, Argument>),
}

#[derive(Deserialize)]
pub(crate) struct Signature {
    pub input_specs: Vec<InputSpec>,
    pub output_specs: Vec<OutputSpec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum InputSpec {
    Parameter { arg: Name, parameter_name: String },
    Buffer { arg: Name, buffer_name: String, persistent: bool },
    TensorConstant { arg: Name, tensor_constant_name: String },
    CustomObj { custom_obj_name: String },
    Token { arg: Name },
    UserInput { arg: Argument },
    ConstantInput(IgnoredAny),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OutputSpec {
    UserOutput(IgnoredAny),
    LossOutput(IgnoredAny),
    BufferMutation { arg: Name, buffer_name: String },
    ParameterMutation { parameter_name: String },
    UserInputMutation { arg: Name, user_input_name: String },
    GradientToParameter(IgnoredAny),
    GradientToUserInput(IgnoredAny),
    Token(IgnoredAny),
}

/// The configuration of weights or constants.
#[derive(Deserialize)]
pub(crate) struct Payloads {
    pub config: BTreeMap<String, Payload>,
}

#[derive(Deserialize)]
pub(crate) struct Payload {
    pub path_name: String,
    #[serde(default)]
    pub use_pickle: bool,
    pub tensor_meta: Option<TensorMeta>,
}
