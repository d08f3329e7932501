//! Converts arguments to values.

use super::frame::Frame;
use super::schema::{Argument, OptionalTensor, SymArgument};
use crate::ImportError;
use crate::value::{Number, Value};

fn list<T>(items: &[T], mut value: impl FnMut(&T) -> Result<Value, ImportError>) -> Result<Value, ImportError> {
    items.iter().map(&mut value).collect::<Result<Vec<_>, _>>().map(Value::List)
}

impl Frame<'_> {
    /// The value of an argument.
    pub fn value(&mut self, argument: &Argument) -> Result<Value, ImportError> {
        let number = |number: Number| Ok(Value::Number(number));
        match argument {
            Argument::AsNone(_) | Argument::AsOptionalTensor(OptionalTensor::AsNone(_)) => Ok(Value::None),
            Argument::AsTensor(name) | Argument::AsOptionalTensor(OptionalTensor::AsTensor(name)) => {
                self.read(&name.name)
            }
            Argument::AsTensors(names) => list(names, |name| self.read(&name.name)),
            Argument::AsOptionalTensors(tensors) => list(tensors, |tensor| match tensor {
                OptionalTensor::AsTensor(name) => self.read(&name.name),
                OptionalTensor::AsNone(_) => Ok(Value::None),
            }),
            Argument::AsInt(value) => Ok(Value::int(*value)),
            Argument::AsInts(values) => list(values, |&value| Ok(Value::int(value))),
            Argument::AsFloat(value) => number(Number::Float(value.0)),
            Argument::AsFloats(values) => list(values, |value| number(Number::Float(value.0))),
            Argument::AsBool(value) => number(Number::Bool(*value)),
            Argument::AsBools(values) => list(values, |&value| number(Number::Bool(value))),
            Argument::AsString(text) | Argument::AsOperator(text) => Ok(Value::String(text.clone())),
            Argument::AsSymInt(symbol) | Argument::AsSymFloat(symbol) | Argument::AsSymBool(symbol) => {
                self.symbol(symbol)
            }
            Argument::AsSymInts(symbols) | Argument::AsSymFloats(symbols) | Argument::AsSymBools(symbols) => {
                list(symbols, |symbol| self.symbol(symbol))
            }
            // Types of results are declared separately.
            Argument::AsScalarType(_) | Argument::AsMemoryFormat(_) | Argument::AsLayout(_) | Argument::AsDevice(_) => {
                Ok(Value::None)
            }
            Argument::AsNestedTensors(_)
            | Argument::AsIntLists(_)
            | Argument::AsFloatLists(_)
            | Argument::AsStrings(_)
            | Argument::AsComplex(_)
            | Argument::AsGraph(_)
            | Argument::AsCustomObj(_)
            | Argument::AsStringToArgument(_) => Ok(Value::String("an argument of another kind".to_owned())),
        }
    }

    fn symbol(&mut self, symbol: &SymArgument) -> Result<Value, ImportError> {
        match symbol {
            SymArgument::AsName(name) => self.read(name),
            SymArgument::AsInt(value) => Ok(Value::int(*value)),
            SymArgument::AsFloat(value) => Ok(Value::Number(Number::Float(value.0))),
            SymArgument::AsBool(value) => Ok(Value::Number(Number::Bool(*value))),
        }
    }
}
