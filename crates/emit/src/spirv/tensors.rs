//! Workgroup-scope matrices, loaded and stored as tiles of tensors.

use super::pieces::Pieces;
use super::words::{Instruction, Words, push};
use spirv::{
    CooperativeMatrixLayout, CooperativeMatrixOperands, CooperativeMatrixUse, Op, Scope, TensorAddressingOperands,
    TensorClampMode,
};
use std::collections::{HashMap, HashSet};

/// The types and constants added to a module, and properties of existing ones.
pub(super) struct Tensors {
    /// Rows and columns of a tile, and its steps of `k`.
    tile: [u32; 3],
    /// Values of integer constants, by id.
    known: HashMap<u32, u32>,
    /// Uses of matrix types, by id.
    uses: HashMap<u32, CooperativeMatrixUse>,
    integer: u32,
    /// Of matrices of integers.
    bytes: Option<Bytes>,
    /// Ids of integer constants, by value.
    words: HashMap<u32, u32>,
    /// Tensor layouts for tiles within the tensor, and for tiles that may exceed it.
    layouts: [u32; 2],
    transposed: u32,
    false_: u32,
    boolean: u32,
    pieces: Pieces,
    next: u32,
}

/// Rows of matrices that have integers.
const ROWS_OF_INTEGERS: u32 = 8;

/// Types of matrices of integers.
struct Bytes {
    /// The type of signed bytes.
    byte: u32,
    /// The types of 32-bit signed integers, and whether it is declared earlier than by naga.
    sum: u32,
    is_hoisted: bool,
    /// The types of matrices.
    matrices: HashSet<u32>,
}

/// The last parameters of a function for a tile of a tensor: the start of the tile and the size of the tensor. With
/// `is_clamped`, the tile may exceed the tensor.
#[derive(Clone, Copy)]
pub(super) struct Part {
    row: u32,
    column: u32,
    rows: u32,
    columns: u32,
    is_clamped: bool,
}

impl Part {
    pub fn of(parameters: &[u32], is_clamped: bool) -> Option<Self> {
        match parameters {
            &[.., row, column, rows, columns] => Some(Self { row, column, rows, columns, is_clamped }),
            _ => None,
        }
    }
}

impl Bytes {
    fn multiplies(&self, instruction: Instruction) -> bool {
        instruction.is(Op::CooperativeMatrixMulAddKHR)
            && instruction.word(1).is_some_and(|ty| self.matrices.contains(&ty))
    }
}

impl Tensors {
    /// `functions` are the functions for tiles of tensors.
    pub fn new(module: &Words, tile: [u32; 3], functions: &HashMap<u32, bool>, integers: bool) -> Result<Self, String> {
        let mut next = module.header().get(3).copied().ok_or("a module without a header")?;
        let mut id = || {
            next += 1;
            next - 1
        };
        let (mut integer, mut boolean, mut known, mut uses) = (None, None, HashMap::new(), HashMap::new());
        let (mut signed, mut is_hoisted, mut of_integers) = (None, false, HashSet::new());
        for instruction in module.instructions() {
            match *instruction.words() {
                [_, id, 32, 0] if instruction.is(Op::TypeInt) => integer = Some(id),
                [_, id, 32, 1] if instruction.is(Op::TypeInt) => (signed, is_hoisted) = (Some(id), integer.is_some()),
                [_, id] if instruction.is(Op::TypeBool) => boolean = Some(id),
                [_, _, id, word] if instruction.is(Op::Constant) => drop(known.insert(id, word)),
                [_, id, _, _, rows, _, role] if instruction.is(Op::TypeCooperativeMatrixKHR) => {
                    of_integers.extend((known.get(&rows) == Some(&ROWS_OF_INTEGERS)).then_some(id));
                    let role = known.get(&role).copied().and_then(CooperativeMatrixUse::from_u32);
                    uses.insert(id, role.ok_or("a matrix without a use")?);
                }
                _ => {}
            }
        }
        let words = [0, 1, 2].into_iter().chain(tile);
        let words: HashMap<u32, u32> = words.map(|word| (word, id())).collect();
        let (layouts, transposed, false_) = ([id(), id()], id(), id());
        let [integer, boolean] = [integer, boolean].map(|found| found.ok_or("no integers or bools"));
        let (integer, boolean) = (integer?, boolean?);
        let sum = signed.ok_or("no signed integers");
        let bytes = integers.then(|| Ok::<_, &str>(Bytes { byte: id(), sum: sum?, is_hoisted, matrices: of_integers }));
        let bytes = bytes.transpose()?;
        let pieces = Pieces::new(module, integer, functions, &mut id);
        Ok(Self { tile, known, uses, integer, bytes, words, layouts, transposed, false_, boolean, pieces, next })
    }

    /// The exclusive upper bound of ids.
    pub fn bound(&self) -> u32 {
        self.next
    }

    fn id(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    fn word(&self, word: u32) -> u32 {
        self.words[&word]
    }

    fn extents(&self, role: CooperativeMatrixUse) -> (u32, u32) {
        let [rows, columns, depth] = self.tile;
        match role {
            CooperativeMatrixUse::MatrixAKHR => (rows, depth),
            CooperativeMatrixUse::MatrixBKHR => (depth, columns),
            CooperativeMatrixUse::MatrixAccumulatorKHR => (rows, columns),
        }
    }

    /// True if the module has matrices of integers.
    pub fn multiplies_integers(&self) -> bool {
        self.bytes.is_some()
    }

    /// Writes integer constants and the types based on integers, after the integer type is declared.
    pub fn declare_of_integers(&self, result: &mut Vec<u32>) {
        self.pieces.declare(result, self.integer);
        if let Some(bytes) = &self.bytes {
            push(result, Op::TypeInt, &[bytes.byte, 8, 1]);
            if bytes.is_hoisted {
                push(result, Op::TypeInt, &[bytes.sum, 32, 1]);
            }
        }
        let mut words: Vec<_> = self.words.iter().collect();
        words.sort_unstable();
        words.into_iter().for_each(|(word, id)| push(result, Op::Constant, &[self.integer, *id, *word]));
    }

    pub fn is_integer(&self, instruction: Instruction) -> bool {
        instruction.is(Op::TypeInt) && instruction.word(1) == Some(self.integer)
    }

    /// Writes decorations, before all types.
    pub fn decorate(&self, result: &mut Vec<u32>) {
        self.pieces.decorate(result);
    }

    /// Writes the replacement of an instruction that declares or points into a tensor buffer. Returns false for other
    /// instructions.
    pub fn take(&self, result: &mut Vec<u32>, instruction: Instruction) -> bool {
        match &self.bytes {
            Some(Bytes { sum, is_hoisted: true, .. })
                if instruction.is(Op::TypeInt) && instruction.word(1) == Some(*sum) =>
            {
                true
            }
            Some(bytes) if bytes.multiplies(instruction) => {
                let signed = CooperativeMatrixOperands::MATRIX_A_SIGNED_COMPONENTS_KHR
                    | CooperativeMatrixOperands::MATRIX_B_SIGNED_COMPONENTS_KHR
                    | CooperativeMatrixOperands::MATRIX_C_SIGNED_COMPONENTS_KHR
                    | CooperativeMatrixOperands::MATRIX_RESULT_SIGNED_COMPONENTS_KHR;
                let operands = instruction.words().get(1..6).unwrap_or_default();
                push(result, Op::CooperativeMatrixMulAddKHR, &[operands, &[signed.bits()]].concat());
                true
            }
            _ => self.pieces.take(result, instruction),
        }
    }

    /// Writes types, before the first function.
    pub fn declare_types(&self, result: &mut Vec<u32>) {
        for (layout, clamp) in self.layouts.into_iter().zip([TensorClampMode::Undefined, TensorClampMode::Constant]) {
            push(result, Op::TypeTensorLayoutNV, &[layout, self.word(2), self.word(clamp as u32)]);
        }
        push(result, Op::ConstantFalse, &[self.boolean, self.false_]);
        let order = [self.word(1), self.word(0)];
        push(result, Op::TypeTensorViewNV, &[self.transposed, self.word(2), self.false_, order[0], order[1]]);
    }

    /// Writes the workgroup-scope type that replaces a matrix type.
    pub fn declare_matrix(&self, result: &mut Vec<u32>, instruction: Instruction) -> Result<(), String> {
        let &[_, id, component, _, _, _, role] = instruction.words() else {
            return Err("a matrix without a use".to_owned());
        };
        let role_of = *self.uses.get(&id).ok_or("a matrix without a use")?;
        let (rows, columns) = self.extents(role_of);
        let component = match (self.bytes.as_ref().filter(|bytes| bytes.matrices.contains(&id)), role_of) {
            (None, _) => component,
            (Some(bytes), CooperativeMatrixUse::MatrixAccumulatorKHR) => bytes.sum,
            (Some(bytes), _) => bytes.byte,
        };
        let operands = [id, component, self.word(Scope::Workgroup as u32), self.word(rows), self.word(columns), role];
        push(result, Op::TypeCooperativeMatrixKHR, &operands);
        Ok(())
    }

    /// Writes the layout of a tile of a tensor with this number of rows and columns. Returns its id.
    fn slice(&mut self, result: &mut Vec<u32>, part: Part, pitch: u32, (rows, columns): (u32, u32)) -> u32 {
        let ty = self.layouts[usize::from(part.is_clamped)];
        let [created, sized, strided, sliced] = [(); 4].map(|()| self.id());
        push(result, Op::CreateTensorLayoutNV, &[ty, created]);
        push(result, Op::TensorLayoutSetDimensionNV, &[ty, sized, created, part.rows, part.columns]);
        push(result, Op::TensorLayoutSetStrideNV, &[ty, strided, sized, pitch, self.word(1)]);
        let (rows, columns) = (self.word(rows), self.word(columns));
        push(result, Op::TensorLayoutSliceNV, &[ty, sliced, strided, part.row, rows, part.column, columns]);
        sliced
    }

    /// Writes the tensor load that replaces a matrix load.
    pub fn load(&mut self, result: &mut Vec<u32>, load: Instruction, part: Part) -> Result<(), String> {
        let &[_, ty, id, pointer, layout, pitch] = load.words() else {
            return Err("a load without a pitch".to_owned());
        };
        let (rows, columns) = self.extents(*self.uses.get(&ty).ok_or("a load of no matrix")?);
        let along_columns = self.known.get(&layout) == Some(&(CooperativeMatrixLayout::ColumnMajorKHR as u32));
        let sliced = self.slice(result, part, pitch, if along_columns { (columns, rows) } else { (rows, columns) });
        let nothing = self.id();
        push(result, Op::Undef, &[ty, nothing]);
        let mut operands = vec![ty, id, pointer, nothing, sliced, 0];
        match along_columns {
            true => {
                let view = self.id();
                push(result, Op::CreateTensorViewNV, &[self.transposed, view]);
                operands.extend([TensorAddressingOperands::TENSOR_VIEW.bits(), view]);
            }
            false => operands.push(TensorAddressingOperands::NONE.bits()),
        }
        push(result, Op::CooperativeMatrixLoadTensorNV, &operands);
        Ok(())
    }

    /// Writes the tensor store that replaces the store of an accumulator matrix.
    pub fn store(&mut self, result: &mut Vec<u32>, store: Instruction, part: Part) -> Result<(), String> {
        let &[_, pointer, matrix, _, pitch] = store.words() else { return Err("a store without a pitch".to_owned()) };
        let extents = self.extents(CooperativeMatrixUse::MatrixAccumulatorKHR);
        let sliced = self.slice(result, part, pitch, extents);
        push(
            result,
            Op::CooperativeMatrixStoreTensorNV,
            &[pointer, matrix, sliced, 0, TensorAddressingOperands::NONE.bits()],
        );
        Ok(())
    }
}
