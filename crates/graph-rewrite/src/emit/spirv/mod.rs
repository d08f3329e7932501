//! SPIR-V of kernels that do with cooperative matrices what WGSL cannot say.
//!
//! Templates declare a function for every such thing, whose body is never run, and naga writes calls of it like any others. Here
//! the calls become instructions of `SPV_NV_cooperative_matrix2`, and the functions are left out:
//!
//! | function | instruction |
//! | --- | --- |
//! | `matrix_to_halves(m)` | `OpFConvert` of sums to halves |
//! | `matrix_to_left(m)` | `OpCooperativeMatrixConvertNV` of sums to a left operand |
//! | `matrix_each_NAME(m, ..)` | `OpCooperativeMatrixPerElementOpNV` of the function `NAME`, which takes the row, the column, the element and the rest; of a matrix among them its element |
//! | `subgroup_uniform(condition)` | the condition, which is the same for all invocations of a subgroup |

mod words;

use super::validate;
use super::{EmitError, ParsedKernel, Target};
use naga::back::spv;
use spirv::{Capability, Op};
use std::collections::HashMap;
use words::{Instruction, Words};

/// The extension's name in a module.
const EXTENSION: &str = "SPV_NV_cooperative_matrix2";

/// What begins the names of functions that stand for an operation on every element.
const EACH: &str = "matrix_each_";

/// What stands in place of a call.
#[derive(Clone, Copy)]
enum Replacement {
    /// An instruction with the same operands.
    Instruction(Op),
    /// The function that is called for every element.
    Each(u32),
}

impl ParsedKernel {
    /// The SPIR-V of a kernel that [`EmittedKernel::needs_spirv`](super::EmittedKernel::needs_spirv), for a device of Vulkan 1.3 that offers what
    /// `target` does. `checked`: with checks of every index and bounds of every loop.
    ///
    /// # Errors
    /// [`EmitError::Shader`] where naga cannot write it, or it calls what it does not declare.
    pub fn spirv(&self, target: &Target, checked: bool) -> Result<Vec<u32>, EmitError> {
        let failed = |reason: String| EmitError::Shader { line: None, reason };
        let info = validate::check_for(&self.module, &self.kernel.wgsl, target)?;
        let policy = if checked { naga::proc::BoundsCheckPolicy::Restrict } else { naga::proc::BoundsCheckPolicy::Unchecked };
        let options = spv::Options {
            lang_version: (1, 6),
            // With names, by which functions are found.
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
        replaced(&words).map_err(failed)
    }
}

/// A module with calls replaced.
fn replaced(module: &[u32]) -> Result<Vec<u32>, String> {
    let words = Words::new(module).ok_or("naga wrote no SPIR-V")?;
    let replacements = replacements(&words)?;
    let mut result = words.header().to_vec();
    let (mut has_capabilities, mut has_extension, mut leaves_out) = (false, false, false);
    for instruction in words.instructions() {
        match instruction.op() {
            op if !has_capabilities && op != Op::Capability as u16 => {
                has_capabilities = true;
                for capability in [
                    Capability::CooperativeMatrixConversionsNV,
                    Capability::CooperativeMatrixPerElementOperationsNV,
                ] {
                    words::push(&mut result, Op::Capability, &[capability as u32]);
                }
            }
            _ => {}
        }
        if has_capabilities && !has_extension {
            has_extension = true;
            words::push(&mut result, Op::Extension, &words::string(EXTENSION));
        }
        if instruction.is(Op::Name) || instruction.is(Op::MemberName) {
            continue;
        }
        let known = |at: usize| instruction.word(at).and_then(|id| replacements.get(&id)).copied();
        if instruction.is(Op::Function) && known(2).is_some() {
            leaves_out = true;
        }
        match known(3).filter(|_| instruction.is(Op::FunctionCall)) {
            _ if leaves_out => {}
            Some(replacement) => replace(&mut result, instruction, replacement)?,
            None => result.extend_from_slice(instruction.words()),
        }
        leaves_out &= !instruction.is(Op::FunctionEnd);
    }
    Ok(result)
}

/// What replaces calls of which functions.
fn replacements(words: &Words) -> Result<HashMap<u32, Replacement>, String> {
    let names = words.instructions().filter(|instruction| instruction.is(Op::Name));
    let names: HashMap<String, u32> = names.filter_map(|name| Some((name.string(2), name.word(1)?))).collect();
    let functions = words.instructions().filter(|instruction| instruction.is(Op::Function));
    let functions: Vec<u32> = functions.filter_map(|function| function.word(2)).collect();
    let mut replacements = HashMap::new();
    for (name, &id) in names.iter().filter(|(_, id)| functions.contains(id)) {
        let replacement = match name.as_str() {
            "matrix_to_halves" => Replacement::Instruction(Op::FConvert),
            "matrix_to_left" => Replacement::Instruction(Op::CooperativeMatrixConvertNV),
            "subgroup_uniform" => Replacement::Instruction(Op::CopyObject),
            name => match name.strip_prefix(EACH) {
                Some(own) => {
                    let function = names.get(own).filter(|id| functions.contains(id));
                    Replacement::Each(*function.ok_or_else(|| format!("there is no function `{own}` for `{name}`"))?)
                }
                None => continue,
            },
        };
        replacements.insert(id, replacement);
    }
    Ok(replacements)
}

/// Writes what replaces a call: its type, its result and its arguments stay.
fn replace(result: &mut Vec<u32>, call: Instruction, replacement: Replacement) -> Result<(), String> {
    let [_, ty, id, _, arguments @ ..] = call.words() else { return Err("a call without a function".to_owned()) };
    match (replacement, arguments) {
        (Replacement::Instruction(op), arguments) => words::push(result, op, &[&[*ty, *id], arguments].concat()),
        (Replacement::Each(function), [matrix, rest @ ..]) => {
            let operands = [&[*ty, *id, *matrix, function], rest].concat();
            words::push(result, Op::CooperativeMatrixPerElementOpNV, &operands);
        }
        (Replacement::Each(_), []) => return Err("an operation on elements of no matrix".to_owned()),
    }
    Ok(())
}
