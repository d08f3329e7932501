//! Declares tensor buffers as arrays of 16-byte vectors, which hardware loads and stores at once.
//!
//! In WGSL, a matrix has the element type of the buffer that it is loaded from. SPIR-V does not require that, and
//! drivers load and store tiles of a tensor faster if they know the alignment to 16 bytes.

use super::words::{Instruction, Words, push};
use spirv::{Decoration, Op, StorageClass};
use std::collections::{HashMap, HashSet};

/// Bytes of a piece, a vector of four integers.
const PIECE: u32 = 16;

/// The new types of tensor buffers, and the variables and pointers with these types.
pub(super) struct Pieces {
    piece: u32,
    array: u32,
    block: u32,
    /// Types of pointers to a block, to its array, and to a vector in the array.
    pointers: [u32; 3],
    /// The new types of variables that are only used as tensors, and of pointers into them.
    retyped: HashMap<u32, u32>,
}

impl Pieces {
    /// `integer` is the integer type, `functions` are the functions for tiles of tensors.
    pub fn new(module: &Words, integer: u32, functions: &HashMap<u32, bool>, mut id: impl FnMut() -> u32) -> Self {
        let vector = module.instructions().find_map(|instruction| match *instruction.words() {
            [_, id, component, 4] if instruction.is(Op::TypeVector) && component == integer => Some(id),
            _ => None,
        });
        let (piece, array, block) = (vector.unwrap_or_else(&mut id), id(), id());
        let pointers = [(); 3].map(|()| id());
        Self { piece, array, block, pointers, retyped: retyped(module, functions, pointers) }
    }

    /// Writes decorations, before all types.
    pub fn decorate(&self, result: &mut Vec<u32>) {
        push(result, Op::Decorate, &[self.array, Decoration::ArrayStride as u32, PIECE]);
        push(result, Op::Decorate, &[self.block, Decoration::Block as u32]);
        push(result, Op::MemberDecorate, &[self.block, 0, Decoration::Offset as u32, 0]);
    }

    /// Writes types, after the integer type is declared.
    pub fn declare(&self, result: &mut Vec<u32>, integer: u32) {
        push(result, Op::TypeVector, &[self.piece, integer, 4]);
        push(result, Op::TypeRuntimeArray, &[self.array, self.piece]);
        push(result, Op::TypeStruct, &[self.block, self.array]);
        for (pointer, to) in self.pointers.into_iter().zip([self.block, self.array, self.piece]) {
            push(result, Op::TypePointer, &[pointer, StorageClass::StorageBuffer as u32, to]);
        }
    }

    /// Writes the replacement of an instruction. Returns false if there is none.
    pub fn take(&self, result: &mut Vec<u32>, instruction: Instruction) -> bool {
        if instruction.is(Op::TypeVector) && instruction.word(1) == Some(self.piece) {
            return true;
        }
        let points = instruction.is(Op::Variable) || instruction.is(Op::AccessChain);
        match (instruction.words(), instruction.word(2).and_then(|id| self.retyped.get(&id))) {
            ([first, _, rest @ ..], Some(pointer)) if points => {
                result.extend([*first, *pointer]);
                result.extend_from_slice(rest);
                true
            }
            _ => false,
        }
    }
}

/// Variables that only functions for tiles of tensors use, and the pointers into them in these functions, with their
/// new types.
fn retyped(module: &Words, functions: &HashMap<u32, bool>, [block, array, piece]: [u32; 3]) -> HashMap<u32, u32> {
    let (mut inside, mut chains, mut variables) = (false, vec![], HashSet::new());
    for instruction in module.instructions() {
        match *instruction.words() {
            [_, _, id, storage, ..]
                if instruction.is(Op::Variable) && storage == StorageClass::StorageBuffer as u32 =>
            {
                variables.insert(id);
            }
            [_, _, id, ..] if instruction.is(Op::Function) => inside = functions.contains_key(&id),
            [_, _, id, base, ..] if inside && instruction.is(Op::AccessChain) => chains.push((id, base)),
            [_, _, _, base, ..] if instruction.is(Op::AccessChain) => drop(variables.remove(&base)),
            _ => {}
        }
    }
    let mut retyped = HashMap::new();
    for (id, base) in chains {
        if variables.contains(&base) {
            retyped.extend([(base, block), (id, array)]);
        } else if retyped.get(&base) == Some(&array) {
            retyped.insert(id, piece);
        }
    }
    retyped
}
