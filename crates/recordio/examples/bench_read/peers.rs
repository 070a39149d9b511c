//! The same records in Parquet, read by the crate `parquet`: the peer that is available from the registry under our
//! licences.
//!
//! One column of bytes, no dictionary and no statistics, pages of about a chunk's size. Like our batches it returns a
//! slice of a shared buffer for each record.

use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use paddlecloud_recordio::Compressor;
use parquet::basic::Compression;
use parquet::column::reader::ColumnReader;
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

const BATCH: usize = 1000;
const GROUP_BYTES: usize = 32 << 20;

pub fn write(
    path: &Path,
    records: &[Vec<u8>],
    compressor: Compressor,
    page_bytes: usize,
) -> Result<(), Box<dyn Error>> {
    let schema = Arc::new(parse_message_type("message schema { required binary record; }")?);
    let properties = WriterProperties::builder()
        .set_compression(match compressor {
            Compressor::Snappy => Compression::SNAPPY,
            _ => Compression::UNCOMPRESSED,
        })
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_data_page_size_limit(page_bytes)
        .build();
    let mut writer = SerializedFileWriter::new(File::create(path)?, schema, Arc::new(properties))?;
    let record_len = records.first().map_or(1, Vec::len).max(1);
    for some in records.chunks((GROUP_BYTES / record_len).max(1)) {
        let mut group = writer.next_row_group()?;
        let mut column = group.next_column()?.ok_or("the schema has one column")?;
        let values: Vec<ByteArray> = some.iter().map(|record| record.clone().into()).collect();
        column.typed::<ByteArrayType>().write_batch(&values, None, None)?;
        column.close()?;
        group.close()?;
    }
    writer.close()?;
    Ok(())
}

/// Reads all records in batches and returns their total size.
pub fn read(path: &Path) -> Result<usize, Box<dyn Error>> {
    let reader = SerializedFileReader::new(File::open(path)?)?;
    let (mut seen, mut values) = (0, Vec::with_capacity(BATCH));
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group)?;
        let ColumnReader::ByteArrayColumnReader(mut column) = group.get_column_reader(0)? else {
            return Err("the column holds bytes".into());
        };
        loop {
            values.clear();
            let (read, _, _) = column.read_records(BATCH, None, None, &mut values)?;
            if read == 0 {
                break;
            }
            seen += black_box(&values).iter().map(ByteArray::len).sum::<usize>();
        }
    }
    Ok(seen)
}
