//! SPIR-V of kernels with operations on cooperative matrices that WGSL lacks.
//!
//! Templates declare a function for every such operation, whose body is never executed. naga generates ordinary calls.
//! This module replaces the calls by instructions of `SPV_NV_cooperative_matrix2` and removes the functions:
//!
//! | function | instruction |
//! | --- | --- |
//! | `matrix_to_f16(m)`, `matrix_to_f32(m)` | `OpFConvert` of accumulators to f16, and back |
//! | `matrix_to_floats(m)` | `OpConvertSToF` of accumulators of integers to f32; in such a module, matrices of 8 x 8 have signed bytes as operands and 32-bit integers as accumulators |
//! | `matrix_to_left(m)` | `OpCooperativeMatrixConvertNV` of accumulators to a left operand |
//! | `matrix_each_NAME(m, ..)` | `OpCooperativeMatrixPerElementOpNV` of the function `NAME`, called with the row, the column, the element, and the other arguments; a matrix among these is replaced by its element |
//! | `matrix_element(m, n)` | `OpCompositeExtract` of element `n`, a constant, of those that an invocation holds |
//! | `tensor_NAME(.., row, column, rows, columns)` | in this function, `coopLoad` and `coopStore` become `OpCooperativeMatrixLoadTensorNV` and `..StoreTensorNV` of the tile at `row` and `column` of a tensor; the tensor has `rows` and `columns` without padding, and contains the whole tile |
//! | `tensor_clamped_NAME(.., row, column, rows, columns)` | the same for a tile that may exceed the tensor: elements outside are loaded as zero and not stored |
//! | `subgroup_uniform(condition)` | the condition, which is the same for all invocations of a subgroup |

mod pieces;
mod tensors;
mod words;

use super::validate;
use super::{EmitError, ParsedKernel};
use naga::back::spv;
use rewire_graph_rewrite::device::{Extension, Target};
use spirv::{Capability, MemorySemantics, Op, StorageClass};
use std::collections::{HashMap, HashSet};
use tensors::{Part, Tensors};
use words::{Instruction, Words};

/// The extension's name in a module.
const EXTENSION: &str = "SPV_NV_cooperative_matrix2";

const TENSOR_EXTENSION: &str = "SPV_NV_tensor_addressing";

/// Name prefix of functions for tiles of tensors, and for tiles that may exceed the tensor.
const TENSOR: &str = "tensor_";
const CLAMPED: &str = "tensor_clamped_";

/// The function that converts accumulators of integers.
const TO_FLOATS: &str = "matrix_to_floats";

/// Name prefix of functions for an operation on every element.
const EACH: &str = "matrix_each_";

/// Semantics of a subgroup barrier as written by naga, which does not order memory in Vulkan, and of a barrier that
/// orders workgroup memory.
const OF_NO_MEMORY: u32 = MemorySemantics::ACQUIRE_RELEASE.union(MemorySemantics::SUBGROUP_MEMORY).bits();
const OF_WORKGROUP: u32 = MemorySemantics::ACQUIRE_RELEASE.union(MemorySemantics::WORKGROUP_MEMORY).bits();

/// The replacement of a call.
#[derive(Clone, Copy)]
enum Replacement {
    /// An instruction with the same operands.
    Instruction(Op),
    /// The function that is called for every element.
    Each(u32),
    /// An element held by an invocation.
    Element,
}

/// Intrinsic functions of shaders for operations that WGSL lacks. Shaders declare them, so that they are valid WGSL.
const INTRINSICS: [(&str, Replacement); 6] = [
    ("matrix_to_f16", Replacement::Instruction(Op::FConvert)),
    ("matrix_to_f32", Replacement::Instruction(Op::FConvert)),
    (TO_FLOATS, Replacement::Instruction(Op::ConvertSToF)),
    ("matrix_to_left", Replacement::Instruction(Op::CooperativeMatrixConvertNV)),
    ("matrix_element", Replacement::Element),
    ("subgroup_uniform", Replacement::Instruction(Op::CopyObject)),
];

impl ParsedKernel {
    /// The SPIR-V of a kernel, for a Vulkan 1.3 device with the capabilities of `target`. With `checked`, shaders check
    /// every index and bound every loop.
    ///
    /// # Errors
    /// [`EmitError::Shader`] if naga cannot write it, or it calls an undeclared function.
    pub fn spirv(&self, target: &Target, checked: bool) -> Result<Vec<u32>, EmitError> {
        let failed = |reason: String| EmitError::Shader { line: None, reason };
        let info = validate::check_for(&self.module, &self.kernel.wgsl, target)?;
        let policy =
            if checked { naga::proc::BoundsCheckPolicy::Restrict } else { naga::proc::BoundsCheckPolicy::Unchecked };
        let options = spv::Options {
            lang_version: (1, 6),
            // Functions are found by their debug names.
            flags: spv::WriterFlags::DEBUG,
            fake_missing_bindings: true,
            bounds_check_policies: naga::proc::BoundsCheckPolicies {
                index: policy,
                buffer: policy,
                image_load: policy,
                binding_array: policy,
            },
            zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
            force_loop_bounding: checked,
            emit_int_div_checks: checked,
            ..spv::Options::default()
        };
        let words = spv::write_vec(&self.module, &info, &options, None).map_err(|error| failed(error.to_string()))?;
        match self.kernel.extension {
            Some(extension) => replaced(&words, extension).map_err(failed),
            None => Ok(words),
        }
    }
}

/// Replaces the calls in a module and, for workgroup-scope matrices, their loads and stores of tensor tiles.
fn replaced(module: &[u32], extension: Extension) -> Result<Vec<u32>, String> {
    let words = Words::new(module).ok_or("naga wrote no SPIR-V")?;
    let named = functions(&words).filter(|(name, _)| name.starts_with(TENSOR));
    let tensor_functions: HashMap<u32, bool> = named.map(|(name, id)| (id, name.starts_with(CLAMPED))).collect();
    let tensors = match extension {
        Extension::Elements => None,
        Extension::Workgroup { tile } => {
            let integers = functions(&words).any(|(name, _)| name == TO_FLOATS);
            Some(Tensors::new(&words, tile, &tensor_functions, integers)?)
        }
    };
    let mut rewriter = Rewriter {
        replacements: replacements(&words)?,
        constants: constants(&words).collect(),
        semantics: semantics(&words),
        strideless: strideless(&words),
        tensor_functions,
        tensors,
        place: Place::Capabilities,
        result: words.header().to_vec(),
    };
    words.instructions().try_for_each(|instruction| rewriter.take(instruction))?;
    if let (Some(tensors), Some(bound)) = (&rewriter.tensors, rewriter.result.get_mut(3)) {
        *bound = tensors.bound();
    }
    Ok(rewriter.result)
}

/// The position of an instruction in a module.
enum Place {
    Capabilities,
    /// Before decorations.
    Modes,
    Declarations,
    /// In a function, or after it.
    Function,
    /// In a removed function.
    LeftOut,
    /// In a function for a tile of a tensor, with the parameters seen so far. With `is_clamped`, the tile may exceed
    /// the tensor.
    Tensor {
        is_clamped: bool,
        parameters: Vec<u32>,
    },
}

struct Rewriter {
    replacements: HashMap<u32, Replacement>,
    /// Values of constants, by id.
    constants: HashMap<u32, u32>,
    /// Barrier semantics, and their replacement.
    semantics: Option<(u32, u32)>,
    /// Arrays without a stride.
    strideless: HashSet<u32>,
    /// Functions for tiles of tensors, and whether the tiles may exceed the tensor.
    tensor_functions: HashMap<u32, bool>,
    tensors: Option<Tensors>,
    place: Place,
    result: Vec<u32>,
}

impl Rewriter {
    fn take(&mut self, instruction: Instruction) -> Result<(), String> {
        if matches!(self.place, Place::Capabilities) && !instruction.is(Op::Capability) {
            self.declare_extensions();
            self.place = Place::Modes;
        }
        if matches!(self.place, Place::Modes) && (instruction.is(Op::Decorate) || instruction.is(Op::MemberDecorate)) {
            self.tensors.iter().for_each(|tensors| tensors.decorate(&mut self.result));
            self.place = Place::Declarations;
        }
        if instruction.is(Op::Function) {
            self.enter(instruction)?;
        }
        match &mut self.place {
            Place::LeftOut => {}
            Place::Tensor { parameters, .. } if instruction.is(Op::FunctionParameter) => {
                parameters.extend(instruction.word(2));
                self.copy(instruction);
            }
            Place::Tensor { is_clamped, parameters } => {
                let part = Part::of(parameters, *is_clamped);
                self.take_of_tensor(instruction, part)?;
            }
            _ => self.take_plain(instruction)?,
        }
        if instruction.is(Op::FunctionEnd) {
            self.place = Place::Function;
        }
        Ok(())
    }

    fn copy(&mut self, instruction: Instruction) {
        self.result.extend_from_slice(instruction.words());
    }

    fn declare_extensions(&mut self) {
        let (mut capabilities, mut names) = (
            vec![Capability::CooperativeMatrixConversionsNV, Capability::CooperativeMatrixPerElementOperationsNV],
            vec![EXTENSION],
        );
        if let Some(tensors) = &self.tensors {
            capabilities.extend(tensors.multiplies_integers().then_some(Capability::Int8));
            capabilities.extend([Capability::TensorAddressingNV, Capability::CooperativeMatrixTensorAddressingNV]);
            names.push(TENSOR_EXTENSION);
        }
        capabilities.into_iter().for_each(|one| words::push(&mut self.result, Op::Capability, &[one as u32]));
        names.into_iter().for_each(|name| words::push(&mut self.result, Op::Extension, &words::string(name)));
    }

    /// Enters a function. The first one follows all types.
    fn enter(&mut self, function: Instruction) -> Result<(), String> {
        if let (Place::Declarations, Some(tensors)) = (&self.place, &self.tensors) {
            tensors.declare_types(&mut self.result);
        }
        let Some(id) = function.word(2) else { return Err("a function without a name".to_owned()) };
        self.place = match (self.replacements.contains_key(&id), self.tensor_functions.get(&id)) {
            (true, _) => Place::LeftOut,
            (_, Some(&is_clamped)) => Place::Tensor { is_clamped, parameters: vec![] },
            _ => Place::Function,
        };
        Ok(())
    }

    fn take_plain(&mut self, instruction: Instruction) -> Result<(), String> {
        let is_decorated =
            instruction.is(Op::Decorate) && instruction.word(1).is_some_and(|id| self.strideless.contains(&id));
        if instruction.is(Op::Name) || instruction.is(Op::MemberName) || is_decorated {
            return Ok(());
        }
        let known = instruction.word(3).and_then(|id| self.replacements.get(&id)).copied();
        match (known.filter(|_| instruction.is(Op::FunctionCall)), &self.tensors) {
            (Some(replacement), _) => return self.replace(instruction, replacement),
            (None, Some(tensors)) if instruction.is(Op::TypeCooperativeMatrixKHR) => {
                return tensors.declare_matrix(&mut self.result, instruction);
            }
            (None, Some(tensors)) if tensors.take(&mut self.result, instruction) => {}
            _ => match (instruction.words(), self.semantics) {
                (&[first, execution, memory, own], Some((known, better)))
                    if instruction.is(Op::ControlBarrier) && own == known =>
                {
                    self.result.extend([first, execution, memory, better]);
                }
                _ => self.copy(instruction),
            },
        }
        if let Some(tensors) = self.tensors.as_ref().filter(|tensors| tensors.is_integer(instruction)) {
            tensors.declare_of_integers(&mut self.result);
        }
        Ok(())
    }

    /// Writes the replacement of a call, with its type, result and arguments.
    fn replace(&mut self, call: Instruction, replacement: Replacement) -> Result<(), String> {
        let &[_, ty, id, _, ref arguments @ ..] = call.words() else {
            return Err("a call without a function".to_owned());
        };
        let (op, operands) = match (replacement, arguments) {
            (Replacement::Instruction(op), arguments) => (op, arguments.to_vec()),
            (Replacement::Each(function), &[matrix, ref rest @ ..]) => {
                (Op::CooperativeMatrixPerElementOpNV, [&[matrix, function], rest].concat())
            }
            (Replacement::Each(_), []) => return Err("an operation on elements of no matrix".to_owned()),
            (Replacement::Element, &[matrix, number]) => {
                let number = self.constants.get(&number).ok_or("an element whose number is not a constant")?;
                (Op::CompositeExtract, vec![matrix, *number])
            }
            (Replacement::Element, _) => return Err("an element of no matrix".to_owned()),
        };
        words::push(&mut self.result, op, &[&[ty, id], operands.as_slice()].concat());
        Ok(())
    }

    fn take_of_tensor(&mut self, instruction: Instruction, part: Option<Part>) -> Result<(), String> {
        let part = || part.ok_or_else(|| "a part of a tensor without its place".to_owned());
        match &mut self.tensors {
            Some(tensors) if instruction.is(Op::CooperativeMatrixLoadKHR) => {
                tensors.load(&mut self.result, instruction, part()?)
            }
            Some(tensors) if instruction.is(Op::CooperativeMatrixStoreKHR) => {
                tensors.store(&mut self.result, instruction, part()?)
            }
            Some(tensors) if tensors.take(&mut self.result, instruction) => Ok(()),
            _ => {
                self.copy(instruction);
                Ok(())
            }
        }
    }
}

/// The ids and values of constants with one word.
fn constants(words: &Words) -> impl Iterator<Item = (u32, u32)> {
    words.instructions().filter(|one| one.is(Op::Constant)).filter_map(|one| match *one.words() {
        [_, _, id, word] => Some((id, word)),
        _ => None,
    })
}

/// The constants of a module for barrier semantics that order no memory, and their replacement.
fn semantics(words: &Words) -> Option<(u32, u32)> {
    let constant = |wanted: u32| constants(words).find_map(|(id, word)| (word == wanted).then_some(id));
    Some((constant(OF_NO_MEMORY)?, constant(OF_WORKGROUP)?))
}

/// Arrays in workgroup memory. naga decorates them with strides, which Vulkan does not allow there.
fn strideless(words: &Words) -> HashSet<u32> {
    let arrays = words.instructions().filter(|one| one.is(Op::TypeArray)).filter_map(|one| one.word(1));
    let mut arrays: HashSet<u32> = arrays.collect();
    for instruction in words.instructions() {
        match *instruction.words() {
            [_, _, storage, to] if instruction.is(Op::TypePointer) && storage != StorageClass::Workgroup as u32 => {
                arrays.remove(&to);
            }
            [_, _, ref members @ ..] if instruction.is(Op::TypeStruct) => {
                arrays.retain(|array| !members.contains(array));
            }
            _ => {}
        }
    }
    arrays
}

/// The functions of a module, by name.
fn functions(words: &Words) -> impl Iterator<Item = (String, u32)> {
    let ids: HashSet<u32> =
        words.instructions().filter(|one| one.is(Op::Function)).filter_map(|one| one.word(2)).collect();
    let names = words.instructions().filter(|instruction| instruction.is(Op::Name));
    let named = names.filter_map(move |name| Some((name.string(2), name.word(1).filter(|id| ids.contains(id))?)));
    named.collect::<Vec<_>>().into_iter()
}

/// The replacements of calls, by function.
fn replacements(words: &Words) -> Result<HashMap<u32, Replacement>, String> {
    let functions: HashMap<String, u32> = functions(words).collect();
    let mut replacements = HashMap::new();
    for (name, &id) in &functions {
        let replacement = match (INTRINSICS.iter().find(|(known, _)| known == name), name.strip_prefix(EACH)) {
            (Some((_, replacement)), _) => *replacement,
            (None, Some(own)) => {
                let function = functions.get(own);
                Replacement::Each(*function.ok_or_else(|| format!("there is no function `{own}` for `{name}`"))?)
            }
            (None, None) => continue,
        };
        replacements.insert(id, replacement);
    }
    Ok(replacements)
}
