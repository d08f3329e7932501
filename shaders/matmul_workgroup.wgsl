// Matrix product of matrices that a whole workgroup shares: finish(m, n, sum over k of left(m, k) * right(k, n)), as a tensor.
//
// Bindings: params (uniform), sizes and operand_N (read), output_N (read_write).
// Operands and results are f16 as they are stored, sums f32. A workgroup computes a tile of {{ tile_m }} x {{ tile_n }} elements in steps of
// {{ tile_k }}. In SPIR-V, matrices of {{ size }} x {{ size }} here are those of the tile, and loads and stores in functions `tensor_..` are of parts of tensors,
// of which in `tensor_clamped_..` what lies beyond their ends is zero and is not written: see `emit/spirv` in `crates/graph-rewrite`. The driver
// divides matrices among subgroups and stages them. The sum runs over k in order.

enable wgpu_cooperative_matrix;

const DEPTH = {{ k }}u;

{{ declarations -}}
{{ hooks -}}
{% include "matrix_elements.wgsl" %}
{% macro matrix(use, element) %}coop_mat{{ size }}x{{ size }}<{{ element }}, {{ use }}>{% endmacro %}
{% set sums = "coop_mat" ~ size ~ "x" ~ size ~ "<f32, C>" %}
{% set halves = "coop_mat" ~ size ~ "x" ~ size ~ "<f16, C>" %}
{% set part = "row: u32, column: u32, rows: u32, columns: u32" %}
{% for clamped in ["", "clamped_"] %}
{% if clamped %}
// The same of parts that may end beyond the tensors.
{% endif %}
// A part of left, from a row and a column on.
fn tensor_{{ clamped }}left({{ part }}) -> {{ matrix("A", "f16") }} {
    let at = 0u;
    let pitch = {{ left.pitch }}u;
    return coopLoadT<{{ matrix("A", "f16") }}>(&operand_{{ left.operand }}[at], pitch);
}

// A part of right{{ ", whose rows are columns of the product" if right.transposed }}.
fn tensor_{{ clamped }}right({{ part }}) -> {{ matrix("B", "f16") }} {
    let at = 0u;
    let pitch = {{ right.pitch }}u;
    return coopLoad{{ "" if right.transposed else "T" }}<{{ matrix("B", "f16") }}>(&operand_{{ right.operand }}[at], pitch);
}

{% for each in given %}
// A part of what results take.
fn tensor_{{ clamped }}given{{ loop.index0 }}({{ part }}) -> {{ halves }} {
    let at = 0u;
    let pitch = {{ each.pitch }}u;
    return coopLoadT<{{ halves }}>(&operand_{{ each.operand }}[at], pitch);
}

{% endfor %}
fn tensor_{{ clamped }}result(result: {{ halves }}, {{ part }}) {
    let at = 0u;
    let pitch = {{ result.pitch }}u;
    coopStoreT(result, &output_{{ result.output }}[at], pitch);
}

{% endfor %}
{% macro given_parameters(ty) %}{% for _ in given %}, given{{ loop.index0 }}: {{ ty }}{% endfor %}{% endmacro %}
{% macro given_names() %}{% for _ in given %}, given{{ loop.index0 }}{% endfor %}{% endmacro %}
// What becomes of a sum of a whole tile.
fn result_of_sum(row: u32, column: u32, sum: f32{{ given_parameters("f32") }}, m0: i32, n0: i32) -> f32 {
    return finish(m0 + i32(row), n0 + i32(column), sum{{ given_names() }});
}

fn matrix_each_result_of_sum(sums: {{ sums }}{{ given_parameters(sums) }}, m0: i32, n0: i32) -> {{ sums }} {
    return sums;
}

// What becomes of a sum of another. Rows and columns past the last ones read those.
fn clamped_result_of_sum(row: u32, column: u32, sum: f32{{ given_parameters("f32") }}, m0: i32, n0: i32, rows: i32, columns: i32) -> f32 {
    return finish(min(m0 + i32(row), rows - 1), min(n0 + i32(column), columns - 1), sum{{ given_names() }});
}

fn matrix_each_clamped_result_of_sum(sums: {{ sums }}{{ given_parameters(sums) }}, m0: i32, n0: i32, rows: i32, columns: i32) -> {{ sums }} {
    return sums;
}

{% macro step(clamped) %}
            let left = tensor_{{ clamped }}left(u32(m0), k0, u32(rows), DEPTH);
{% if right.transposed %}
            let right = tensor_{{ clamped }}right(u32(n0), k0, u32(columns), DEPTH);
{% else %}
            let right = tensor_{{ clamped }}right(k0, u32(n0), DEPTH, u32(columns));
{% endif %}
            sum = coopMultiplyAdd(left, right, sum);
{% endmacro %}
{% macro load_given(clamped) %}
{% for _ in given %}
        let given{{ loop.index0 }} = matrix_to_floats(tensor_{{ clamped }}given{{ loop.index0 }}(u32(m0), u32(n0), u32(rows), u32(columns)));
{% endfor %}
{% endmacro %}
{% include "workgroup.wgsl" %}
{{ body }}
    let columns = {{ n }};
    // Clamping costs the hardware half its speed.
    if (subgroup_uniform(m0 + {{ tile_m }} <= rows && n0 + {{ tile_n }} <= columns)) {
        var sum = {{ sums }}();
        for (var k0 = 0u; k0 < {{ k - k % tile_k }}u; k0 += {{ tile_k }}u) {
{{ step("") -}}
        }
{% if k % tile_k %}
        {
            let k0 = {{ k - k % tile_k }}u;
{{ step("clamped_") -}}
        }
{% endif %}
{{ load_given("") -}}
        let result = matrix_to_halves(matrix_each_result_of_sum(sum{{ given_names() }}, m0, n0));
        tensor_result(result, u32(m0), u32(n0), u32(rows), u32(columns));
    } else {
        var sum = {{ sums }}();
        for (var k0 = 0u; k0 < DEPTH; k0 += {{ tile_k }}u) {
{{ step("clamped_") -}}
        }
{{ load_given("clamped_") -}}
        let result = matrix_to_halves(matrix_each_clamped_result_of_sum(sum{{ given_names() }}, m0, n0, rows, columns));
        tensor_clamped_result(result, u32(m0), u32(n0), u32(rows), u32(columns));
    }
}
