//! Rows as Parquet: one flat schema, numbers as INT64, flags as BOOLEAN, texts
//! as UTF-8, columns that not every event has as optional; zstd inside.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use super::rows::{COLUMNS, Column, Kind, Row, Value};

/// Rows that are kept in memory and written together.
const GROUP: usize = 1 << 17;

/// Values of one column.
enum Data {
    Numbers(Vec<i64>),
    Flags(Vec<bool>),
    Texts(Vec<ByteArray>),
}

/// A column being filled: its values and, row by row, whether there is one.
struct Filling {
    column: &'static Column,
    data: Data,
    there: Vec<i16>,
}

impl Filling {
    fn new(column: &'static Column) -> Self {
        let data = match column.kind {
            Kind::Number => Data::Numbers(Vec::new()),
            Kind::Flag => Data::Flags(Vec::new()),
            Kind::Text => Data::Texts(Vec::new()),
        };
        Filling {
            column,
            data,
            there: Vec::new(),
        }
    }

    fn push(&mut self, row: &Row<'_>) {
        let value = (self.column.get)(row);
        self.there.push(i16::from(value.is_some()));
        match (&mut self.data, value) {
            // Numbers of a trace are below 2^63, but for flags nobody knows:
            // those keep their bits.
            (Data::Numbers(numbers), Some(Value::Number(number))) => numbers.push(number as i64),
            (Data::Flags(flags), Some(Value::Flag(flag))) => flags.push(flag),
            (Data::Texts(texts), Some(Value::Text(text))) => {
                texts.push(ByteArray::from(text.as_bytes().to_vec()));
            }
            _ => {}
        }
    }

    fn write<W: Write + Send>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<(), ParquetError> {
        let there = (!self.column.required).then_some(self.there.as_slice());
        match &self.data {
            Data::Numbers(numbers) => put::<Int64Type, W>(group, numbers, there),
            Data::Flags(flags) => put::<BoolType, W>(group, flags, there),
            Data::Texts(texts) => put::<ByteArrayType, W>(group, texts, there),
        }?;
        self.there.clear();
        match &mut self.data {
            Data::Numbers(numbers) => numbers.clear(),
            Data::Flags(flags) => flags.clear(),
            Data::Texts(texts) => texts.clear(),
        }
        Ok(())
    }
}

fn put<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    there: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let missing = || ParquetError::General("a column more than the schema has".into());
    let mut column = group.next_column()?.ok_or_else(missing)?;
    column.typed::<T>().write_batch(values, there, None)?;
    column.close()
}

/// Writes a file of rows.
pub struct Table<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    columns: Vec<Filling>,
    rows: usize,
}

impl<W: Write + Send> Table<W> {
    /// Starts a file.
    ///
    /// # Errors
    /// `out` cannot be written to.
    pub fn new(out: W) -> Result<Self, ParquetError> {
        let level = ZstdLevel::try_new(3)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            .set_created_by(concat!("vellum ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        Ok(Table {
            writer: SerializedFileWriter::new(out, schema()?, Arc::new(properties))?,
            columns: COLUMNS.iter().map(Filling::new).collect(),
            rows: 0,
        })
    }

    /// Adds a row.
    ///
    /// # Errors
    /// The rows so far cannot be written.
    pub fn push(&mut self, row: &Row<'_>) -> Result<(), ParquetError> {
        for column in &mut self.columns {
            column.push(row);
        }
        self.rows += 1;
        if self.rows == GROUP {
            self.write_group()?;
        }
        Ok(())
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        self.rows = 0;
        let mut group = self.writer.next_row_group()?;
        for column in &mut self.columns {
            column.write(&mut group)?;
        }
        group.close().map(drop)
    }

    /// Completes the file and gives back where it went.
    ///
    /// # Errors
    /// The rest cannot be written.
    pub fn finish(mut self) -> Result<W, ParquetError> {
        if self.rows > 0 {
            self.write_group()?;
        }
        self.writer.into_inner()
    }
}

fn schema() -> Result<TypePtr, ParquetError> {
    let mut fields = Vec::new();
    for column in COLUMNS {
        let (physical, converted) = match column.kind {
            Kind::Number => (Physical::INT64, ConvertedType::NONE),
            Kind::Flag => (Physical::BOOLEAN, ConvertedType::NONE),
            Kind::Text => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
        };
        let repetition = match column.required {
            true => Repetition::REQUIRED,
            false => Repetition::OPTIONAL,
        };
        let field = Type::primitive_type_builder(column.name, physical)
            .with_converted_type(converted)
            .with_repetition(repetition)
            .build()?;
        fields.push(Arc::new(field));
    }
    let schema = Type::group_type_builder("event")
        .with_fields(fields)
        .build()?;
    Ok(Arc::new(schema))
}
