//! Maps columns of a file to parts of a request.

use super::super::columns::Role;
use super::super::missing_column;
use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor, Type};
use rewire::rank::Schema;

/// A column of a file that the model reads.
#[derive(Clone, Debug)]
pub struct LeafColumn {
    /// Position among the columns of the file.
    pub position: usize,
    /// Name for messages.
    pub name: String,
    pub role: Role,
    /// The minimum definition level of a list with an entry; `None` for single values.
    pub entry: Option<i16>,
    /// The definition level of a present value.
    pub value: i16,
    /// Integers are unsigned.
    pub unsigned: bool,
}

/// A column of a file to copy.
#[derive(Clone, Debug)]
pub struct CarriedColumn {
    /// Position among the columns of the file.
    pub position: usize,
    pub name: String,
    /// The minimum definition level of a list with an entry; `None` for single values.
    pub entry: Option<i16>,
    /// The definition level of a present value.
    pub value: i16,
    /// Integers are unsigned.
    pub unsigned: bool,
}

/// The columns that the model reads.
pub fn leaves(file: &SchemaDescriptor, schema: &Schema) -> Result<Vec<LeafColumn>, String> {
    ["history", "candidates"].iter().try_for_each(|group| check_struct(file.root_schema(), group))?;
    let mut leaves: Vec<LeafColumn> = Vec::new();
    for (position, column) in file.columns().iter().enumerate() {
        let Some((role, depth)) = Role::of(column.path().parts(), schema) else { continue };
        let parts = column.path().parts();
        let name = parts.get(..depth).unwrap_or(parts).join(".");
        if leaves.iter().any(|leaf| leaf.role == role) {
            return Err(format!("the column `{name}` is there twice, or is a list of structs"));
        }
        let is_list = role.is_list();
        let (entry, value) = levels(file.root_schema(), column, is_list, depth).ok_or_else(|| {
            format!("`{name}` is not {}", if is_list { "a list of integers" } else { "a single value" })
        })?;
        let unsigned = check_type(&role, &name, column)?;
        leaves.push(LeafColumn { position, name, role, entry, value, unsigned });
    }
    let names: Vec<String> = file.columns().iter().map(|column| title(column.path().parts())).collect();
    schema.check_names(names.iter().map(String::as_str)).map_err(|fault| fault.to_string())?;
    Ok(leaves)
}

/// The columns of a file to copy.
pub fn carried(file: &SchemaDescriptor, names: &[String]) -> Result<Vec<CarriedColumn>, String> {
    let column = |name: &String| {
        let of_name = |&position: &usize| title(file.column(position).path().parts()) == *name;
        let positions: Vec<usize> = (0..file.num_columns()).filter(of_name).collect();
        let [position] = positions[..] else {
            return Err(match positions[..] {
                [] => {
                    let names: Vec<String> = file.columns().iter().map(|column| title(column.path().parts())).collect();
                    missing_column(name, names.iter().map(String::as_str))
                }
                _ => format!("the column `{name}` is a struct or is there twice: expected values or lists of values"),
            });
        };
        let column = file.column(position);
        let depth = if column.path().parts().first() == Some(name) { 1 } else { 2 };
        let is_list = column.max_rep_level() > 0;
        let (entry, value) = levels(file.root_schema(), &column, is_list, depth)
            .ok_or_else(|| format!("`{name}` is not a value or list of values"))?;
        let unsigned = check_carried(name, &column)?;
        Ok(CarriedColumn { position, name: name.clone(), entry, value, unsigned })
    };
    names.iter().map(column).collect()
}

/// The schema's name of a column, from its path.
fn title(path: &[String]) -> String {
    match path {
        [group, name, ..] if ["history", "candidates"].contains(&group.as_str()) => format!("{group}.{name}"),
        [top, ..] => top.clone(),
        [] => String::new(),
    }
}

fn check_struct(root: &Type, group: &str) -> Result<(), String> {
    let Some(field) = root.get_fields().iter().find(|field| field.name() == group) else { return Ok(()) };
    let info = field.get_basic_info();
    let repeated = info.has_repetition() && info.repetition() == Repetition::REPEATED;
    if field.is_primitive() || info.converted_type() != ConvertedType::NONE || repeated {
        return Err(format!("`{group}` is not a struct of lists"));
    }
    Ok(())
}

/// The definition levels of an entry of a list and of a value. The outer group around the repeated one, and the field
/// inside it, are optional.
fn levels(root: &Type, column: &ColumnDescriptor, is_list: bool, depth: usize) -> Option<(Option<i16>, i16)> {
    let parts = column.path().parts();
    let (mut node, mut level, mut entry) = (root, 0, None);
    for (at, part) in parts.iter().enumerate() {
        node = node.get_fields().iter().find(|field| field.name() == part)?;
        match node.get_basic_info().repetition() {
            Repetition::REQUIRED => {}
            Repetition::OPTIONAL => level += 1,
            Repetition::REPEATED if entry.is_none() && is_list && at + 1 >= depth && at <= depth => {
                level += 1;
                entry = Some((at, level));
            }
            Repetition::REPEATED => return None,
        }
    }
    let is_whole = match entry {
        Some((at, _)) => at + 2 >= parts.len(),
        None => parts.len() == depth,
    };
    let fits = is_whole && entry.is_some() == is_list && level == column.max_def_level();
    fits.then_some((entry.map(|(_, level)| level), level))
}

/// Checks that a column has the type for its role; true for unsigned integers.
fn check_type(role: &Role, name: &str, column: &ColumnDescriptor) -> Result<bool, String> {
    use ConvertedType as C;
    let converted = column.converted_type();
    let of_no_unit = matches!(column.logical_type_ref(), None | Some(LogicalType::Integer { .. }));
    let signed = [C::NONE, C::INT_8, C::INT_16, C::INT_32, C::INT_64].contains(&converted);
    let unsigned = [C::UINT_8, C::UINT_16, C::UINT_32, C::UINT_64].contains(&converted);
    match column.physical_type() {
        Physical::INT32 | Physical::INT64 if of_no_unit && (signed || unsigned) => Ok(unsigned),
        Physical::FLOAT | Physical::DOUBLE if *role != Role::User => Ok(false),
        Physical::BYTE_ARRAY if *role == Role::User && ![C::DECIMAL, C::BSON].contains(&converted) => Ok(false),
        physical => {
            let expected = if *role == Role::User { "text or integers" } else { "integers" };
            let kind = if converted == C::NONE { physical.to_string() } else { converted.to_string() };
            Err(format!("the column `{name}` is of {kind}: expected {expected}"))
        }
    }
}

/// Checks that a column holds bools, integers, floats or strings; true for unsigned integers.
pub fn check_carried(name: &str, column: &ColumnDescriptor) -> Result<bool, String> {
    use ConvertedType as C;
    let converted = column.converted_type();
    let unsigned = [C::UINT_8, C::UINT_16, C::UINT_32, C::UINT_64].contains(&converted);
    match column.physical_type() {
        Physical::INT32 | Physical::INT64 | Physical::BYTE_ARRAY if [C::DECIMAL, C::BSON].contains(&converted) => {
            Err(format!("the column `{name}` is of {converted}: expected bools, integers, floats or strings"))
        }
        Physical::INT96 | Physical::FIXED_LEN_BYTE_ARRAY => Err(format!(
            "the column `{name}` is of {}: expected bools, integers, floats or strings",
            column.physical_type()
        )),
        _ => Ok(unsigned),
    }
}
