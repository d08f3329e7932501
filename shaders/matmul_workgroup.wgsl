// Matrix product of matrices that a whole workgroup shares: finish(m, n, sum over k of left(m, k) * right(k, n)), as a tensor.
//
// Bindings: params (uniform), sizes and operand_N (read), output_N (read_write).
// Operands and results are f16 as they are stored, sums f32. A workgroup computes a tile of {{ tile_m }} x {{ tile_n }} elements in steps of
// {{ tile_k }}. In SPIR-V, matrices of {{ size }} x {{ size }} here are those of the tile, and loads and stores in functions `tensor_..` are of parts of tensors,
// of which what lies beyond their ends is zero and is not written: see `emit/spirv` in `crates/graph-rewrite`. The driver
// divides matrices among subgroups and stages them. The sum runs over k in order.

enable wgpu_cooperative_matrix;

const DEPTH = {{ k }}u;

{{ declarations -}}
{{ hooks -}}
{% include "matrix_elements.wgsl" %}
{% macro matrix(use, element) %}coop_mat{{ size }}x{{ size }}<{{ element }}, {{ use }}>{% endmacro %}
{% set part = "row: u32, column: u32, rows: u32, columns: u32" %}
// A part of left, from a row and a column on.
fn tensor_left({{ part }}) -> {{ matrix("A", "f16") }} {
    let at = 0u;
    let pitch = {{ left.pitch }}u;
    return coopLoadT<{{ matrix("A", "f16") }}>(&operand_{{ left.operand }}[at], pitch);
}

// A part of right{{ ", whose rows are columns of the product" if right.transposed }}.
fn tensor_right({{ part }}) -> {{ matrix("B", "f16") }} {
    let at = 0u;
    let pitch = {{ right.pitch }}u;
    return coopLoad{{ "" if right.transposed else "T" }}<{{ matrix("B", "f16") }}>(&operand_{{ right.operand }}[at], pitch);
}

fn tensor_result(result: {{ matrix("C", "f16") }}, {{ part }}) {
    let at = 0u;
    let pitch = {{ result.pitch }}u;
    coopStoreT(result, &output_{{ result.output }}[at], pitch);
}

// What becomes of a sum. Rows and columns past the last ones read those.
fn result_of_sum(row: u32, column: u32, sum: f32, m0: i32, n0: i32, rows: i32, columns: i32) -> f32 {
    return finish(min(m0 + i32(row), rows - 1), min(n0 + i32(column), columns - 1), sum);
}

fn matrix_each_result_of_sum(sums: {{ matrix("C", "f32") }}, m0: i32, n0: i32, rows: i32, columns: i32) -> {{ matrix("C", "f32") }} {
    return sums;
}

{% include "workgroup.wgsl" %}
{{ body }}
    let columns = {{ n }};
    var sum = {{ matrix("C", "f32") }}();
    for (var k0 = 0u; k0 < DEPTH; k0 += {{ tile_k }}u) {
        let left = tensor_left(u32(m0), k0, u32(rows), DEPTH);
{% if right.transposed %}
        let right = tensor_right(u32(n0), k0, u32(columns), DEPTH);
{% else %}
        let right = tensor_right(k0, u32(n0), DEPTH, u32(columns));
{% endif %}
        sum = coopMultiplyAdd(left, right, sum);
    }
    let result = matrix_to_halves(matrix_each_result_of_sum(sum, m0, n0, rows, columns));
    tensor_result(result, u32(m0), u32(n0), u32(rows), u32(columns));
}
