//! Writes pickles.

use std::collections::HashMap;

/// A global: its module, and its name in the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name(pub &'static str, pub &'static str);

impl Name {
    /// Parses the full name of a global.
    pub fn of(full: &'static str) -> Self {
        let (module, name) = full.rsplit_once('.').unwrap_or(("builtins", full));
        Self(module, name)
    }
}

/// A pickle encoder. Each global is written once, and afterwards read from the memo.
pub(super) struct Encoder {
    bytes: Vec<u8>,
    protocol: u8,
    memo: HashMap<Name, u32>,
}

impl Encoder {
    /// Starts a pickle. `protocol` is 2 or 4.
    pub fn new(protocol: u8) -> Self {
        Self { bytes: vec![0x80, protocol], protocol, memo: HashMap::new() }
    }

    /// Ends the pickle; its value is the last object written.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.push(b'.');
        self.bytes
    }

    fn code(&mut self, code: &[u8]) {
        self.bytes.extend_from_slice(code);
    }

    pub fn none(&mut self) {
        self.code(b"N");
    }

    pub fn bool(&mut self, value: bool) {
        self.code(if value { b"\x88" } else { b"\x89" });
    }

    /// Writes an integer below 2^63.
    pub fn int(&mut self, value: u64) {
        match (u8::try_from(value), u16::try_from(value)) {
            (Ok(value), _) => self.code(&[b'K', value]),
            (_, Ok(value)) => {
                self.code(b"M");
                self.code(&value.to_le_bytes());
            }
            _ => {
                debug_assert!(i64::try_from(value).is_ok(), "{value} is signed in a pickle");
                self.code(&[0x8a, 8]);
                self.code(&value.to_le_bytes());
            }
        }
    }

    pub fn string(&mut self, text: &str) {
        self.code(b"X");
        self.code(&(text.len() as u32).to_le_bytes());
        self.code(text.as_bytes());
    }

    pub fn global(&mut self, name: Name) {
        if let Some(key) = self.memo.get(&name).copied() {
            self.code(b"j");
            return self.code(&key.to_le_bytes());
        }
        let Name(module, attribute) = name;
        if self.protocol < 4 {
            self.code(format!("c{module}\n{attribute}\n").as_bytes());
        } else {
            self.string(module);
            self.string(attribute);
            self.code(b"\x93");
        }
        let key = self.memo.len() as u32;
        self.memo.insert(name, key);
        self.code(b"r");
        self.code(&key.to_le_bytes());
    }

    pub fn tuple(&mut self, items: impl FnOnce(&mut Self)) {
        self.code(b"(");
        items(self);
        self.code(b"t");
    }

    pub fn extents(&mut self, extents: &[usize]) {
        self.tuple(|pickle| extents.iter().for_each(|extent| pickle.int(*extent as u64)));
    }

    pub fn list(&mut self, items: impl FnOnce(&mut Self)) {
        self.code(b"](");
        items(self);
        self.code(b"e");
    }

    /// Writes a dict; `items` writes its keys and values alternately.
    pub fn dict(&mut self, items: impl FnOnce(&mut Self)) {
        self.code(b"}(");
        items(self);
        self.code(b"u");
    }

    /// Writes the call of a function.
    pub fn call(&mut self, function: Name, arguments: impl FnOnce(&mut Self)) {
        self.global(function);
        self.tuple(arguments);
        self.code(b"R");
    }

    /// Turns the last object, a persistent id, into a reference to its target.
    pub fn persistent(&mut self) {
        self.code(b"Q");
    }

    /// Writes an instance of a class and its state.
    pub fn instance_of(&mut self, class: Name, state: impl FnOnce(&mut Self)) {
        self.global(class);
        self.code(b")\x81");
        state(self);
        self.code(b"b");
    }

    /// Writes an instance of a class; `attributes` writes names and values alternately.
    pub fn instance(&mut self, class: Name, attributes: impl FnOnce(&mut Self)) {
        self.instance_of(class, |pickle| pickle.dict(attributes));
    }
}
