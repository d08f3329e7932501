use crate::Failure;
use crate::backend::{report_of, with_kernel};
use rewire::package::Package;
use rewire::predict::{Column, Predicted, PredictedColumn, Predictor, rows_of};
use serde_json::{Value, json};

/// A package of an imported model, ready to predict.
#[derive(Clone, Debug)]
pub struct OpenedPredictor(Predictor);

impl OpenedPredictor {
    /// Opens the bytes of a package with a backend: `auto`, `wgpu` or `cpu`.
    ///
    /// # Errors
    /// [`Failure`] for an invalid package, or for a missing or failing device.
    pub async fn open(package: Vec<u8>, kernel: &str) -> Result<Self, Failure> {
        let options = with_kernel(kernel)?;
        Ok(Self(Predictor::from_package_async(&Package::parse(package)?, &options).await?))
    }

    /// The predictions of the rows of a table.
    ///
    /// # Errors
    /// [`Failure`] for an invalid column or row, or for a failed run.
    pub async fn predict(&self, columns: &[(&str, Column<'_>)]) -> Result<Predicted, Failure> {
        let rows = rows_of(columns).map_err(Failure::of_request)?;
        Ok(self.0.predict_async(rows, columns).await?)
    }

    /// The columns of predictions.
    pub fn outputs(&self) -> &[PredictedColumn] {
        self.0.outputs()
    }

    /// The columns of a table that the model reads.
    pub fn columns(&self) -> &[String] {
        self.0.columns()
    }

    /// The inputs and outputs of the model as text, with an example row as a line of JSON.
    pub fn describe(&self) -> String {
        self.0.describe().to_string()
    }

    /// A description for JavaScript: input columns, output columns, and device.
    pub fn report(&self) -> Value {
        let mut report = report_of(&self.0.report());
        report["columns"] = json!(self.columns());
        report["outputs"] = json!(self.outputs());
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rewire::block_on;
    use rewire::predict::{Data, Offsets, OwnedCell};
    use rewire::rank::{PackOptions, pack};
    use rewire::weights::Weights;
    use std::path::Path;

    fn opened() -> OpenedPredictor {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/columns");
        let pipeline = rewire_tzrec::Pipeline::read(&folder.join("pipeline.config")).unwrap();
        let config = json!({ "pipeline": pipeline.json() }).to_string();
        let stored = std::fs::read(folder.join("model.safetensors")).unwrap();
        let stored = Weights::parse(&stored).unwrap();
        let own = |name: String| name.strip_prefix("model.").map_or_else(|| name.clone(), str::to_owned);
        let tensors = stored.tensors().unwrap().into_iter().map(|(name, tensor)| (own(name), tensor)).collect();
        let weights = rewire::weights::serialize(&tensors, &Default::default()).unwrap();
        let weights = Weights::parse(weights).unwrap();
        let package = pack("columns", &config, &weights, &PackOptions::default()).unwrap();
        block_on(OpenedPredictor::open(package.bytes().to_vec(), "cpu")).unwrap()
    }

    #[test]
    fn typed_columns_predict_as_plain_ones_do() {
        let opened = opened();
        use OwnedCell::{Float, Int, List, Map, Null};
        let of = |cells: [OwnedCell; 2]| Column::of_cells(cells.into()).unwrap();
        let clicks = Map(vec![(OwnedCell::Text("1".into()), Float(0.5)), (OwnedCell::Text("2".into()), Int(2))]);
        let plain = [
            ("clicks", of([clicks, Null])),
            ("price", of([Float(0.5), Int(2)])),
            ("tags", of([List(vec![Int(1)]), List(vec![Int(2), Int(3)])])),
            ("user", of([Int(1), Int(2)])),
        ];
        let list = |ends: &'static [i32], data| Data::List {
            offsets: Offsets::I32(ends.into()),
            items: Box::new(Column::new(data)),
        };
        let clicks = Data::Map {
            offsets: Offsets::I32((&[0, 2, 2]).into()),
            keys: Box::new(Column::new(Data::I64((&[1, 2]).into()))),
            values: Box::new(Column::new(Data::F32((&[0.5, 2.0]).into()))),
        };
        let typed = [
            ("clicks", clicks),
            ("price", Data::F32((&[0.5, 2.0]).into())),
            ("tags", list(&[0, 1, 3], Data::I32((&[1, 2, 3]).into()))),
            ("user", Data::I64((&[1, 2]).into())),
        ];
        let typed = typed.map(|(name, data)| (name, Column::new(data)));
        let predicted = block_on(opened.predict(&plain)).unwrap();
        assert_eq!(block_on(opened.predict(&typed)).unwrap(), predicted);
        // Every parameter is 1, and a table has four columns.
        assert_eq!((predicted.counts, &predicted.columns[0].values[..]), (vec![1, 1], &[18.5, 14.0][..]));
        assert_eq!(block_on(opened.predict(&plain[1..])).unwrap_err().code, "rank.columns");
        let unequal = [plain[0].clone(), ("user", Column::new(Data::I64((&[0]).into())))];
        assert_eq!(block_on(opened.predict(&unequal)).unwrap_err().code, "request.columns");
        assert_eq!(opened.report()["outputs"][0], json!({ "name": "logits", "is_list": false }));
        assert_eq!(opened.report()["columns"], json!(["clicks", "price", "tags", "user"]));
        assert!(opened.describe().contains("any number of ids 0 to 3 with weights"), "{}", opened.describe());
    }
}
