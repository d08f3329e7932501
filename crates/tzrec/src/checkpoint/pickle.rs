//! Parses pickles as data. Nothing is imported or called: a global is a name from a list of allowed ones, and a call is an object with
//! its function and arguments.

use super::CheckpointError;
use std::collections::HashMap;
use std::rc::Rc;

/// A value. As in the pickle, objects are shared; `Object` is an index of a [`Pickle`]'s objects.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i64),
    Str(Rc<str>),
    /// `module.name`, one of the allowed globals.
    Global(&'static str),
    Object(usize),
}

/// An object of a [`Pickle`].
#[derive(Debug)]
pub(super) enum Object {
    Tuple(Vec<Value>),
    List(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    /// The call of a function or class. `state` is set by a later opcode.
    Call {
        function: &'static str,
        arguments: Value,
        state: Option<Value>,
    },
    /// A persistent id.
    Persistent(Value),
}

/// A parsed pickle.
#[derive(Debug)]
pub(super) struct Pickle {
    objects: Vec<Object>,
    root: Value,
}

impl Pickle {
    /// Parses a pickle of protocol 2 to 5. `globals` are the allowed ones. Memory use is proportional to the length of `bytes`.
    pub fn read(bytes: &[u8], globals: &[&'static str]) -> Result<Self, CheckpointError> {
        let mut machine = Machine { input: bytes, globals, ..Machine::default() };
        let root = loop {
            if let Some(root) = machine.step()? {
                break root;
            }
        };
        Ok(Self { objects: machine.objects, root })
    }

    pub fn root(&self) -> &Value {
        &self.root
    }

    pub fn object(&self, value: &Value) -> Option<&Object> {
        match value {
            Value::Object(index) => self.objects.get(*index),
            _ => None,
        }
    }

    /// The elements of a tuple or list.
    pub fn items(&self, value: &Value) -> Option<&[Value]> {
        match self.object(value)? {
            Object::Tuple(items) | Object::List(items) => Some(items),
            _ => None,
        }
    }

    /// The entries of a dict.
    pub fn entries(&self, value: &Value) -> Option<&[(Value, Value)]> {
        match self.object(value)? {
            Object::Dict(entries) => Some(entries),
            _ => None,
        }
    }

    /// Function, arguments and state of a call.
    pub fn call(&self, value: &Value) -> Option<(&'static str, &[Value], Option<&Value>)> {
        match self.object(value)? {
            Object::Call { function, arguments, state } => Some((*function, self.items(arguments)?, state.as_ref())),
            _ => None,
        }
    }

    /// A field of a class instance whose state is a dict.
    pub fn field(&self, value: &Value, class: &str, name: &str) -> Option<&Value> {
        let (function, _, state) = self.call(value)?;
        let entries = self.entries(state.filter(|_| function == class)?)?;
        entries.iter().find(|(key, _)| matches!(key, Value::Str(key) if **key == *name)).map(|(_, value)| value)
    }

    /// The integers of a tuple, a list or a `torch.Size`.
    pub fn extents(&self, value: &Value) -> Option<Vec<usize>> {
        let items = match self.call(value) {
            Some(("torch.Size", [items], None)) => self.items(items)?,
            Some(_) => return None,
            None => self.items(value)?,
        };
        let extent = |item: &Value| match item {
            Value::Int(number) => usize::try_from(*number).ok(),
            _ => None,
        };
        items.iter().map(extent).collect()
    }
}

#[derive(Default)]
struct Machine<'a> {
    input: &'a [u8],
    at: usize,
    globals: &'a [&'static str],
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: HashMap<u32, Value>,
    objects: Vec<Object>,
}

impl Machine<'_> {
    fn wrong(&self, reason: impl ToString) -> CheckpointError {
        CheckpointError::Pickle { at: self.at, reason: reason.to_string() }
    }

    fn bytes(&mut self, count: usize) -> Result<&[u8], CheckpointError> {
        let (start, end) = (self.at, self.at.saturating_add(count));
        if end > self.input.len() {
            return Err(self.wrong("it ends within an instruction"));
        }
        self.at = end;
        Ok(&self.input[start..end])
    }

    fn number(&mut self, count: usize) -> Result<u64, CheckpointError> {
        let bytes = self.bytes(count)?;
        Ok(bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
    }

    fn string(&mut self, length: usize) -> Result<Value, CheckpointError> {
        let text = str::from_utf8(self.bytes(length)?).map(Rc::from);
        text.map(Value::Str).map_err(|error| self.wrong(error))
    }

    fn line(&mut self) -> Result<String, CheckpointError> {
        let length = self.input[self.at..].iter().position(|byte| *byte == b'\n');
        let length = length.ok_or_else(|| self.wrong("it ends within a name"))?;
        let text = String::from_utf8_lossy(self.bytes(length + 1)?).into_owned();
        Ok(text.trim_end().to_owned())
    }

    fn pop(&mut self) -> Result<Value, CheckpointError> {
        let bottom = self.marks.last().copied().unwrap_or(0);
        match self.stack.len() > bottom {
            true => self.stack.pop().ok_or_else(|| self.wrong("its stack is empty")),
            false => Err(self.wrong("its stack is empty")),
        }
    }

    fn since_mark(&mut self) -> Result<Vec<Value>, CheckpointError> {
        let mark = self.marks.pop().ok_or_else(|| self.wrong("it has no mark"))?;
        Ok(self.stack.split_off(mark))
    }

    fn push_object(&mut self, object: Object) {
        self.stack.push(Value::Object(self.objects.len()));
        self.objects.push(object);
    }

    fn tuple(&mut self, count: usize) -> Result<(), CheckpointError> {
        let mut items = (0..count).map(|_| self.pop()).collect::<Result<Vec<_>, _>>()?;
        items.reverse();
        self.push_object(Object::Tuple(items));
        Ok(())
    }

    fn global(&mut self, module: &str, name: &str) -> Result<(), CheckpointError> {
        let full = format!("{module}.{name}");
        let known = self.globals.iter().find(|known| **known == full);
        let known = known.ok_or(CheckpointError::Global { name: full })?;
        self.stack.push(Value::Global(known));
        Ok(())
    }

    fn call(&mut self) -> Result<(), CheckpointError> {
        let arguments = self.pop()?;
        match self.pop()? {
            Value::Global(function) => self.push_object(Object::Call { function, arguments, state: None }),
            _ => return Err(self.wrong("it calls an object that is not a global")),
        }
        Ok(())
    }

    /// The object on top of the stack, which an opcode modifies after popping its operands.
    fn top(&mut self) -> Result<&mut Object, CheckpointError> {
        let index = match self.stack.last() {
            Some(Value::Object(index)) => *index,
            _ => return Err(self.wrong("it changes a value that is not an object")),
        };
        let error = self.wrong("internal error: an object is missing");
        self.objects.get_mut(index).ok_or(error)
    }

    fn append(&mut self, mut items: Vec<Value>) -> Result<(), CheckpointError> {
        let error = self.wrong("it appends to an object that is not a list");
        match self.top()? {
            Object::List(list) => list.append(&mut items),
            _ => return Err(error),
        }
        Ok(())
    }

    fn set_items(&mut self, items: Vec<Value>) -> Result<(), CheckpointError> {
        let error = self.wrong("it sets items of an object that is not a dict");
        match self.top()? {
            Object::Dict(entries) => entries.extend(pairs(items)),
            Object::Call { function: "collections.OrderedDict", .. } => {}
            _ => return Err(error),
        }
        Ok(())
    }

    fn build(&mut self) -> Result<(), CheckpointError> {
        let new = self.pop()?;
        let error = self.wrong("it sets the state of an object that is not an instance");
        match self.top()? {
            Object::Call { state: state @ None, .. } => *state = Some(new),
            _ => return Err(error),
        }
        Ok(())
    }

    fn memoize(&mut self, key: u32) -> Result<(), CheckpointError> {
        let value = self.stack.last().cloned().ok_or_else(|| self.wrong("its stack is empty"))?;
        self.memo.insert(key, value);
        Ok(())
    }

    fn recall(&mut self, key: u64) -> Result<(), CheckpointError> {
        let value = u32::try_from(key).ok().and_then(|key| self.memo.get(&key)).cloned();
        let value = value.ok_or_else(|| self.wrong("it reads an unset memo entry"))?;
        self.stack.push(value);
        Ok(())
    }

    /// Executes one opcode. Returns the result after the last one.
    fn step(&mut self) -> Result<Option<Value>, CheckpointError> {
        match self.number(1)? as u8 {
            0x80 => match self.number(1)? {
                2..=5 => {}
                other => return Err(self.wrong(format!("it has protocol {other}: expected 2 to 5"))),
            },
            0x95 => drop(self.number(8)?),
            b'.' => return self.pop().map(Some),
            b'(' => self.marks.push(self.stack.len()),
            b'N' => self.stack.push(Value::None),
            0x88 => self.stack.push(Value::Bool(true)),
            0x89 => self.stack.push(Value::Bool(false)),
            b'K' => self.int(1)?,
            b'M' => self.int(2)?,
            b'J' => self.int(4)?,
            0x8a => {
                let length = self.number(1)?;
                self.long(length as usize)?;
            }
            0x8c => {
                let length = self.number(1)?;
                let value = self.string(length as usize)?;
                self.stack.push(value);
            }
            b'X' => {
                let length = self.number(4)?;
                let value = self.string(length as usize)?;
                self.stack.push(value);
            }
            b')' => self.push_object(Object::Tuple(vec![])),
            b']' => self.push_object(Object::List(vec![])),
            b'}' => self.push_object(Object::Dict(vec![])),
            0x85 => self.tuple(1)?,
            0x86 => self.tuple(2)?,
            0x87 => self.tuple(3)?,
            b't' => {
                let items = self.since_mark()?;
                self.push_object(Object::Tuple(items));
            }
            b'a' => {
                let item = self.pop()?;
                self.append(vec![item])?;
            }
            b'e' => {
                let items = self.since_mark()?;
                self.append(items)?;
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set_items(vec![key, value])?;
            }
            b'u' => {
                let items = self.since_mark()?;
                self.set_items(items)?;
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(&module, &name)?;
            }
            0x93 => match (self.pop()?, self.pop()?) {
                (Value::Str(name), Value::Str(module)) => self.global(&module, &name)?,
                _ => return Err(self.wrong("the name of a global is not a string")),
            },
            0x81 | b'R' => self.call()?,
            b'b' => self.build()?,
            b'Q' => {
                let id = self.pop()?;
                self.push_object(Object::Persistent(id));
            }
            b'h' => {
                let key = self.number(1)?;
                self.recall(key)?;
            }
            b'j' => {
                let key = self.number(4)?;
                self.recall(key)?;
            }
            b'q' => {
                let key = self.number(1)?;
                self.memoize(key as u32)?;
            }
            b'r' => {
                let key = self.number(4)?;
                self.memoize(key as u32)?;
            }
            0x94 => self.memoize(self.memo.len() as u32)?,
            other => return Err(self.wrong(format!("it has the instruction {other:#04x}, which is not supported"))),
        }
        Ok(None)
    }

    /// Reads an unsigned integer of 1 or 2 bytes, or a signed one of 4 bytes.
    fn int(&mut self, bytes: usize) -> Result<(), CheckpointError> {
        let number = self.number(bytes)?;
        let number = if bytes == 4 { i64::from(number as u32 as i32) } else { number as i64 };
        self.stack.push(Value::Int(number));
        Ok(())
    }

    /// Reads a signed integer of up to 8 bytes.
    fn long(&mut self, bytes: usize) -> Result<(), CheckpointError> {
        if bytes > 8 {
            return Err(self.wrong(format!("it has a number of {bytes} bytes: expected at most 8")));
        }
        let number = self.number(bytes)?;
        let unused = 64 - 8 * bytes as u32;
        self.stack.push(Value::Int(if bytes == 0 { 0 } else { ((number << unused) as i64) >> unused }));
        Ok(())
    }
}

/// Splits alternating keys and values into pairs.
fn pairs(items: Vec<Value>) -> impl Iterator<Item = (Value, Value)> {
    let mut items = items.into_iter();
    std::iter::from_fn(move || Some((items.next()?, items.next()?)))
}
