//! A query gives the outputs of the reference, however it is cut into batches.

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::Float32Type;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use rewire::Kernel;
use rewire::predict::Predictor;
use rewire::rank::RankOptions;
use rewire::weights::{Weights, serialize};
use rewire_datafusion::{call_predict, predict};
use std::collections::BTreeMap;
use std::path::Path;

/// Planning takes more stack than the thread of a test has, where nothing is optimised.
const STACK: usize = 64 << 20;

#[test]
fn a_query_gives_the_predictions_of_an_imported_model() -> Result<(), Box<dyn std::error::Error>> {
    for name in ["mmoe_taobao", "dlrm_hstu_kuairand", "dssm_taobao"] {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let compared = move || runtime.block_on(compare(name)).map_err(|error| format!("{name}: {error}"));
        let thread = std::thread::Builder::new().stack_size(STACK).spawn(compared)?;
        thread.join().map_err(|_| "the comparison panics")??;
    }
    Ok(())
}

/// The model of a pipeline with its weights by the names of their parameters.
fn load(folder: &Path) -> Result<Predictor, Box<dyn std::error::Error>> {
    let pipeline = rewire_tzrec::Pipeline::read(&folder.join("pipeline.config"))?;
    let stored = Weights::read(&folder.join("model.safetensors"))?;
    let tensors: BTreeMap<_, _> = stored
        .names()
        .filter_map(|name| Some((name.strip_prefix("model.").unwrap_or(name).to_owned(), stored.get(name)?)))
        .collect();
    let weights = Weights::parse(serialize(&tensors, &BTreeMap::new())?)?;
    let config = format!(r#"{{ "pipeline": {} }}"#, pipeline.json());
    let options = RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() };
    Ok(Predictor::new("the pipeline", &config, &weights, &options)?)
}

async fn compare(name: &str) -> Result<(), Box<dyn std::error::Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/tzrec").join(name);
    let (predictor, expected) = (load(&folder)?, Weights::read(&folder.join("expected.safetensors"))?);
    for size in [7, 8192] {
        let config = SessionConfig::new().with_batch_size(size).with_target_partitions(1);
        let context = SessionContext::new_with_config(config);
        let data = folder.join("data.parquet");
        context.register_parquet("rows", data.to_string_lossy(), ParquetReadOptions::default()).await?;
        let table = context.table("rows").await?;
        context.register_udf(predict(predictor.clone(), table.schema().as_arrow())?);
        let query = format!("SELECT {} AS predicted FROM rows", call_predict(&predictor));
        let mut found: BTreeMap<String, Vec<f32>> = BTreeMap::new();
        for batch in context.sql(&query).await?.collect().await? {
            let predicted = batch.column(0).as_struct();
            for (output, column) in predicted.column_names().into_iter().zip(predicted.columns()) {
                let mut values = column.clone();
                while let Some(list) = values.as_list_opt::<i32>() {
                    values = list.values().clone();
                }
                let all = found.entry(output.to_owned()).or_default();
                all.extend(values.as_primitive::<Float32Type>().values());
            }
        }
        assert!(!found.is_empty());
        for (output, values) in found {
            let expected = expected.get(&output).ok_or("an output that the reference has not")?.to_f32();
            assert_eq!(values.len(), expected.len(), "{name}, {output}");
            assert!(values.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 2e-5 * b.abs().max(1.0)), "{name}, {output}");
        }
    }
    Ok(())
}
