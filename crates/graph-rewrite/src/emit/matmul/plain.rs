use super::{Parts, place, result_coords};
use crate::emit::hook::{Element, Four, finish};
use crate::emit::module::Module;
use crate::emit::template::{Main, render};
use crate::emit::{EmitError, ParsedKernel, Target, Tuning};
use crate::plan::{Matmul, RowRange};

/// Sizes of a workgroup's tile and of a thread's part of it.
struct Tile {
    m: u32,
    n: u32,
    k: u32,
    rows: u32,
    groups: u32,
}

impl Tile {
    fn new(kernel: &Matmul, target: &Target, tuning: &Tuning) -> Result<Self, EmitError> {
        let few_rows = matches!(&kernel.m, RowRange::Dense(m) if m.as_const().is_some_and(|m| m <= 16));
        let n = tuning.columns.unwrap_or(match kernel.n.as_const() {
            Some(0..=4) => 4,
            Some(5..=16) => 16,
            Some(17..=32) => 32,
            _ => 64,
        });
        let m = tuning.rows.unwrap_or(if few_rows { 16 } else { 64 });
        let k = tuning.depth.unwrap_or(16);
        let rows = tuning.rows_per_thread.unwrap_or(if n <= 4 || m <= 16 {
            1
        } else if n < 64 || target.software {
            4
        } else {
            8
        });
        for (parameter, got) in [("rows", m), ("columns", n), ("depth", k)] {
            if got == 0 || got % 4 != 0 || got > 256 {
                let expected = "a multiple of four up to 256".to_owned();
                return Err(EmitError::Tuning { parameter, expected, got });
            }
        }
        if rows == 0 || rows > 16 || !m.is_multiple_of(rows) {
            let expected = format!("a divisor of {m} rows, up to 16");
            return Err(EmitError::Tuning { parameter: "rows_per_thread", expected, got: rows });
        }
        let columns = n / 4;
        let fits =
            |groups: &u32| columns.is_multiple_of(*groups) && m / rows * (columns / groups) <= target.invocations;
        let groups = (1..=columns).find(fits).unwrap_or(columns);
        Ok(Self { m, n, k, rows, groups })
    }

    fn threads(&self) -> u32 {
        self.m / self.rows * (self.n / 4 / self.groups)
    }
}

/// Emits a matrix product of multiply-adds.
pub(super) fn emit(kernel: &Matmul, mut module: Module, tuning: &Tuning) -> Result<ParsedKernel, EmitError> {
    let tile = Tile::new(kernel, module.target, tuning)?;
    let mut parts = Parts::new(kernel, &mut module, Element::Float)?;
    let (coords, axis) = result_coords(kernel);
    parts.hooks += &finish(&mut module, &Four { coords: &coords, axis, extent: &kernel.n }, &kernel.outputs)?;
    let (body, grid, tile_lists) = place(kernel, (tile.m, tile.n), &mut module)?;
    parts.variables.extend([
        ("tile_m", tile.m.into()),
        ("tile_n", tile.n.into()),
        ("tile_k", tile.k.into()),
        ("rows_per_thread", tile.rows.into()),
        ("groups_per_thread", tile.groups.into()),
        ("left_along_rows", parts.left_along_rows.into()),
        ("right_along_rows", parts.right_along_rows.into()),
    ]);
    let main = Main { threads: tile.threads(), hooks: parts.hooks, body, variables: parts.variables };
    render("matmul.wgsl", module, main, grid, tile_lists)
}
