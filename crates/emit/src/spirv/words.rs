//! Words of SPIR-V: a header of five words, then instructions, whose first word holds their length and opcode.

use spirv::Op;

/// Words of the header.
const HEADER: usize = 5;

/// A module.
pub(super) struct Words<'w> {
    header: &'w [u32],
    body: &'w [u32],
}

impl<'w> Words<'w> {
    /// `None` if the words are too short.
    pub fn new(words: &'w [u32]) -> Option<Self> {
        let (header, body) = words.split_at_checked(HEADER)?;
        Some(Self { header, body })
    }

    pub fn header(&self) -> &'w [u32] {
        self.header
    }

    /// The instructions, up to the first one of length zero.
    pub fn instructions(&self) -> impl Iterator<Item = Instruction<'w>> + use<'w> {
        let mut rest = self.body;
        std::iter::from_fn(move || {
            let length = (*rest.first()? >> 16) as usize;
            let (words, after) = rest.split_at_checked(length).filter(|_| length > 0)?;
            rest = after;
            Some(Instruction(words))
        })
    }
}

/// The words of an instruction.
#[derive(Clone, Copy)]
pub(super) struct Instruction<'w>(&'w [u32]);

impl<'w> Instruction<'w> {
    pub fn words(self) -> &'w [u32] {
        self.0
    }

    pub fn word(self, at: usize) -> Option<u32> {
        self.0.get(at).copied()
    }

    pub fn op(self) -> u16 {
        self.0.first().map_or(0, |word| *word as u16)
    }

    pub fn is(self, op: Op) -> bool {
        u32::from(self.op()) == op as u32
    }

    /// The string that begins at a word.
    pub fn string(self, at: usize) -> String {
        let bytes = self.0.iter().skip(at).flat_map(|word| word.to_le_bytes());
        let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Appends an instruction.
pub(super) fn push(words: &mut Vec<u32>, op: Op, operands: &[u32]) {
    words.push((operands.len() as u32 + 1) << 16 | op as u32);
    words.extend_from_slice(operands);
}

/// A string as words, zero-terminated.
pub(super) fn string(text: &str) -> Vec<u32> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize((bytes.len() / 4 + 1) * 4, 0);
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}
