use super::expr::{Scope, indented};
use super::module::Module;
use super::store::{store_all_four, store_all_point, vector_accesses};
use super::template::{Main, render};
use super::{EmitError, EmittedKernel, GridFactor, Tuning};
use crate::plan::Map;
use rewire_graph::Dim;

const LANES: usize = 4;

/// Emits a loop over points: a thread per four neighbouring points, or per point where nothing aligns.
pub(super) fn emit(kernel: &Map, mut module: Module, tuning: &Tuning) -> Result<EmittedKernel, EmitError> {
    let threads = tuning.threads(module.target)?;
    let Some((last, outer)) = kernel.extents.split_last() else {
        return Err(EmitError::Missing { what: "extent", index: 0, count: 0 });
    };
    let axis = outer.len();
    let wide = last.as_const().is_none_or(|n| n >= LANES) && vector_accesses(&module, axis, &[], &kernel.outputs) > 0;
    let lanes = if wide { LANES } else { 1 };

    let mut main = Scope::point(&[], vec![]);
    let grid = match last.as_const() {
        Some(n) => {
            let groups = n.div_ceil(lanes);
            let rows = module.product(outer);
            main.line(&format!("let thread = workgroup * {threads} + i32(local);"));
            main.block(&format!("if (thread >= {rows} * {groups})"), "return;\n");
            main.line(&format!("let row = i32(u32(thread) / {}u);", groups.max(1)));
            main.line(&format!("let column = (thread - row * {groups}) * {lanes};"));
            let mut sizes = outer.to_vec();
            sizes.push(groups.into());
            vec![GridFactor::Tiles(sizes, threads)]
        }
        None => {
            let tile = threads * lanes as u32;
            let extent = module.dim(last);
            main.line(&format!("let tiles = ({extent} + {}) / {tile};", tile - 1));
            main.line("let row = workgroup / tiles;");
            main.line(&format!("let column = (workgroup - row * tiles) * {tile} + i32(local) * {lanes};"));
            main.block(&format!("if (column >= {extent})"), "return;\n");
            vec![GridFactor::Tiles(outer.to_vec(), 1), GridFactor::Tiles(vec![last.clone()], tile)]
        }
    };
    let mut coords = split_row(&mut module, &mut main, outer, "row");
    coords.push("column".to_owned());
    let valid = if wide && last.as_const().is_none_or(|n| n % LANES != 0) {
        let extent = module.dim(last);
        main.line(&format!("let valid = (column + vec4<i32>(0, 1, 2, 3)) < vec4<i32>({extent});"));
        Some("valid")
    } else {
        None
    };
    let mut scope = match wide {
        true => Scope::four(&module, axis, &coords, vec![], valid),
        false => Scope::point(&coords, vec![]),
    };
    match wide {
        true => store_all_four(&mut scope, &mut module, (axis, "column", last), &kernel.outputs)?,
        false => store_all_point(&mut scope, &mut module, "column", &kernel.outputs)?,
    }
    let body = indented(&(main.take() + &scope.take()));
    let main = Main { threads, body, ..Main::default() };
    render("map.wgsl", include_str!("../../../../shaders/map.wgsl"), module, main, grid, vec![])
}

/// Statements that find the outer coordinates of a flattened row; returns their names.
pub(super) fn split_row(module: &mut Module, scope: &mut Scope, outer: &[Dim], row: &str) -> Vec<String> {
    let mut rest = row.to_owned();
    let mut names = vec![String::new(); outer.len()];
    for (axis, dim) in outer.iter().enumerate().rev() {
        let name = format!("c{axis}");
        if axis == 0 {
            scope.line(&format!("let {name} = {rest};"));
        } else {
            let (extent, divisor) = match dim.as_const() {
                Some(n) => (n.to_string(), format!("{}u", n.max(1))),
                None => (module.dim(dim), format!("u32({})", module.dim(dim))),
            };
            scope.line(&format!("let rest{axis} = i32(u32({rest}) / {divisor});"));
            scope.line(&format!("let {name} = {rest} - rest{axis} * {extent};"));
            rest = format!("rest{axis}");
        }
        names[axis] = name;
    }
    names
}
