//! Writes pickles.

use std::collections::HashMap;

/// A global: its module and its name in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name(pub &'static str, pub &'static str);

impl Name {
    /// A global by its full name.
    pub fn of(full: &'static str) -> Self {
        let (module, name) = full.rsplit_once('.').unwrap_or(("builtins", full));
        Self(module, name)
    }
}

/// A pickle encoder. Globals are written once and recalled from the memo.
pub(super) struct Encoder {
    bytes: Vec<u8>,
    protocol: u8,
    memo: HashMap<Name, u32>,
}

impl Encoder {
    /// Starts a pickle of protocol 2 or 4.
    pub fn new(protocol: u8) -> Self {
        Self { bytes: vec![0x80, protocol], protocol, memo: HashMap::new() }
    }

    /// The pickle, whose content is its last object.
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

    /// An integer below 2^63.
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

    /// A dict of alternating keys and values.
    pub fn dict(&mut self, items: impl FnOnce(&mut Self)) {
        self.code(b"}(");
        items(self);
        self.code(b"u");
    }

    /// The result of a function call.
    pub fn call(&mut self, function: Name, arguments: impl FnOnce(&mut Self)) {
        self.global(function);
        self.tuple(arguments);
        self.code(b"R");
    }

    /// Replaces a persistent id, the last object, by its target.
    pub fn persistent(&mut self) {
        self.code(b"Q");
    }

    /// An instance of a class with a state.
    pub fn instance_of(&mut self, class: Name, state: impl FnOnce(&mut Self)) {
        self.global(class);
        self.code(b")\x81");
        state(self);
        self.code(b"b");
    }

    /// An instance of a class with a state of alternating attributes and values.
    pub fn instance(&mut self, class: Name, attributes: impl FnOnce(&mut Self)) {
        self.instance_of(class, |pickle| pickle.dict(attributes));
    }
}
