use super::{Encoder, Field};
use crate::predict::frame::{Data, Frame};
use crate::requests::{Kind, Value};
use bytes::Bytes;
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter, TrackedWrite};
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};
use std::io;
use std::sync::Arc;

const MAGIC: &[u8] = b"PAR1";

/// One row group for all rows between two calls of `take`.
///
/// Groups are encoded as separate files, and the offsets in their metadata are moved to their final position. A file can
/// therefore continue after the groups of a foot.
pub struct Groups {
    fields: Vec<Field>,
    properties: WriterPropertiesPtr,
    /// Known once rows exist.
    schema: Option<TypePtr>,
    groups: Vec<RowGroupMetaData>,
    rows: i64,
    waiting: Vec<Frame>,
    kinds: Vec<Option<Kind>>,
}

impl Groups {
    pub fn new(fields: Vec<Field>, foot: Option<&[u8]>) -> io::Result<Self> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_created_by(format!("rewire version {}", env!("CARGO_PKG_VERSION")));
        let mut groups = Self {
            kinds: Vec::new(),
            fields,
            properties: Arc::new(properties.build()),
            schema: None,
            groups: Vec::new(),
            rows: 0,
            waiting: Vec::new(),
        };
        if let Some(foot) = foot.filter(|foot| !foot.is_empty()) {
            let metadata = ParquetMetaDataReader::new().parse_and_finish(&Bytes::copy_from_slice(foot));
            let metadata = metadata.map_err(unwritten)?;
            groups.rows = metadata.file_metadata().num_rows();
            groups.schema = Some(metadata.file_metadata().schema_descr().root_schema_ptr());
            groups.groups = metadata.row_groups().to_vec();
        }
        Ok(groups)
    }

    /// The columns of the file, from the values so far.
    fn schema(&self) -> io::Result<TypePtr> {
        if let Some(schema) = &self.schema {
            return Ok(schema.clone());
        }
        let mut kinds = self.kinds.iter().copied();
        let column = |field: &Field| {
            let kind = if let Data::Values(_) = field.data { kinds.next().flatten() } else { None };
            let is_any = matches!(field.data, Data::Values(_)) && field.name != "user";
            let repetition = if is_any { Repetition::OPTIONAL } else { Repetition::REQUIRED };
            let leaf = |name, physical| Type::primitive_type_builder(name, physical).with_repetition(repetition);
            let column = match (&field.data, kind) {
                (Data::Vectors { .. }, _) => return vectors(&field.name),
                (Data::Integers(_), _) | (_, Some(Kind::Integer)) => leaf(&field.name, Physical::INT64),
                (Data::Doubles(_), _) | (_, Some(Kind::Float)) => leaf(&field.name, Physical::DOUBLE),
                (Data::Floats(_), _) => leaf(&field.name, Physical::FLOAT),
                (_, Some(Kind::Bool)) => leaf(&field.name, Physical::BOOLEAN),
                _ => leaf(&field.name, Physical::BYTE_ARRAY).with_logical_type(Some(LogicalType::String)),
            };
            column.build().map(Arc::new)
        };
        let columns = self.fields.iter().map(column).collect::<Result<_, _>>().map_err(unwritten)?;
        let schema = Type::group_type_builder("predictions").with_fields(columns).build();
        schema.map(Arc::new).map_err(unwritten)
    }

    fn encode(&self, schema: &TypePtr) -> Result<(Vec<u8>, RowGroupMetaData), ParquetError> {
        let mut writer = SerializedFileWriter::new(Vec::new(), schema.clone(), self.properties.clone())?;
        let mut group = writer.next_row_group()?;
        for (at, column) in schema.get_fields().iter().enumerate() {
            let parts = self.waiting.iter().filter_map(|frame| frame.columns.get(at));
            put(&mut group, column, parts)?;
        }
        group.close()?;
        let metadata = writer.flushed_row_groups().first().cloned();
        let metadata = metadata.ok_or_else(|| ParquetError::General("a group of rows is missing".into()))?;
        writer.flush()?;
        Ok((writer.inner().get(MAGIC.len()..).unwrap_or_default().to_vec(), metadata))
    }
}

impl Encoder for Groups {
    fn head(&self) -> io::Result<Vec<u8>> {
        Ok(MAGIC.to_vec())
    }

    fn add(&mut self, frame: Frame, kinds: Option<&[Option<Kind>]>) -> io::Result<()> {
        self.kinds = kinds.unwrap_or_default().to_vec();
        if frame.rows > 0 {
            self.waiting.push(frame);
        }
        Ok(())
    }

    fn take(&mut self, position: u64) -> io::Result<Vec<u8>> {
        if self.waiting.is_empty() {
            return Ok(Vec::new());
        }
        let schema = self.schema()?;
        let (bytes, group) = self.encode(&schema).map_err(unwritten)?;
        let by = i64::try_from(position).map_err(io::Error::other)? - MAGIC.len() as i64;
        self.rows += group.num_rows();
        self.groups.push(moved(group, by, self.groups.len()).map_err(unwritten)?);
        self.schema = Some(schema);
        self.waiting.clear();
        Ok(bytes)
    }

    fn foot(&self) -> io::Result<Vec<u8>> {
        let schema = Arc::new(SchemaDescriptor::new(self.schema()?));
        let created = Some(self.properties.created_by().to_owned());
        let file = FileMetaData::new(1, self.rows, created, None, schema, None);
        let metadata = ParquetMetaData::new(file, self.groups.clone());
        let mut foot = Vec::new();
        let writer = ParquetMetaDataWriter::new_with_tracked(TrackedWrite::new(&mut foot), &metadata);
        writer.finish().map_err(unwritten)?;
        Ok(foot)
    }
}

/// The metadata of a group whose bytes are moved.
fn moved(group: RowGroupMetaData, by: i64, ordinal: usize) -> Result<RowGroupMetaData, ParquetError> {
    let column = |column: &ColumnChunkMetaData| {
        let dictionary = column.dictionary_page_offset().map(|offset| offset + by);
        let data = column.data_page_offset() + by;
        column.clone().into_builder().set_data_page_offset(data).set_dictionary_page_offset(dictionary).build()
    };
    let columns = group.columns().iter().map(column).collect::<Result<_, _>>()?;
    let offset = group.file_offset().map(|offset| offset + by);
    let group = group.into_builder().set_column_metadata(columns).set_ordinal(i32::try_from(ordinal)?);
    offset.into_iter().fold(group, |group, offset| group.set_file_offset(offset)).build()
}

/// A column of lists of numbers.
fn vectors(name: &str) -> Result<TypePtr, ParquetError> {
    let element = Type::primitive_type_builder("element", Physical::FLOAT).with_repetition(Repetition::REQUIRED);
    let list = Type::group_type_builder("list").with_repetition(Repetition::REPEATED);
    let list = list.with_fields(vec![Arc::new(element.build()?)]).build()?;
    let column = Type::group_type_builder(name).with_repetition(Repetition::REQUIRED);
    column.with_logical_type(Some(LogicalType::List)).with_fields(vec![Arc::new(list)]).build().map(Arc::new)
}

/// Writes the next column of a group.
fn put<'a>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    column: &TypePtr,
    parts: impl Iterator<Item = &'a Data>,
) -> Result<(), ParquetError> {
    if column.is_group() {
        return put_vectors(group, parts);
    }
    match column.get_physical_type() {
        Physical::BOOLEAN => put_as::<BoolType>(
            group,
            column,
            collect(
                parts,
                |_| None,
                |value| match value {
                    Value::Bool(value) => Some(*value),
                    _ => None,
                },
            ),
        ),
        Physical::INT64 => put_as::<Int64Type>(
            group,
            column,
            collect(parts, Data::integers, |value| match value {
                Value::Integer(value) => Some(*value),
                _ => None,
            }),
        ),
        Physical::DOUBLE => put_as::<DoubleType>(
            group,
            column,
            collect(parts, Data::doubles, |value| match value {
                Value::Float(value) => Some(*value),
                _ => None,
            }),
        ),
        Physical::FLOAT => put_as::<FloatType>(group, column, collect(parts, Data::floats, |_| None)),
        _ => put_as::<ByteArrayType>(
            group,
            column,
            collect(
                parts,
                |_| None,
                |value| match value {
                    Value::Null => None,
                    Value::Text(text) => Some(ByteArray::from(text.as_str())),
                    other => Some(ByteArray::from(other.to_string().as_str())),
                },
            ),
        ),
    }
}

/// The values of a column, and definition levels if it may hold any type.
fn collect<'a, T: Clone>(
    parts: impl Iterator<Item = &'a Data>,
    plain: impl Fn(&Data) -> Option<&[T]>,
    any: impl Fn(&Value) -> Option<T>,
) -> (Vec<T>, Vec<i16>) {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    for part in parts {
        match part {
            Data::Values(cells) => cells.iter().for_each(|cell| {
                let before = values.len();
                values.extend(any(cell));
                levels.push((values.len() - before) as i16);
            }),
            part => values.extend_from_slice(plain(part).unwrap_or_default()),
        }
    }
    (values, levels)
}

fn put_as<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    column: &TypePtr,
    (values, levels): (Vec<T::T>, Vec<i16>),
) -> Result<(), ParquetError> {
    let mut writer = group.next_column()?.ok_or_else(missing)?;
    writer.typed::<T>().write_batch(&values, column.is_optional().then_some(&levels), None)?;
    writer.close()
}

/// Writes a column of vectors, each as a list.
fn put_vectors<'a>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    parts: impl Iterator<Item = &'a Data>,
) -> Result<(), ParquetError> {
    let mut writer = group.next_column()?.ok_or_else(missing)?;
    for part in parts {
        let Data::Vectors { ends, values } = part else { continue };
        let (mut definitions, mut repetitions) = (Vec::with_capacity(values.len()), Vec::with_capacity(values.len()));
        for row in 0..ends.len() {
            let elements = part.vector(row).len();
            definitions.extend(std::iter::repeat_n(i16::from(elements > 0), elements.max(1)));
            repetitions.extend((0..elements.max(1)).map(|at| i16::from(at > 0)));
        }
        writer.typed::<FloatType>().write_batch(values, Some(&definitions), Some(&repetitions))?;
    }
    writer.close()
}

fn missing() -> ParquetError {
    ParquetError::General("a column is missing".into())
}

fn unwritten(error: ParquetError) -> io::Error {
    io::Error::other(error)
}
