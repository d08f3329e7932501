// Matrix product of matrices that a whole workgroup shares: finish(m, n, sum over k of left(m, k) * right(k, n)), as a tensor.
//
// Bindings: params (uniform), sizes and operand_N (read), output_N (read_write).
// Operands are {{ "bytes, with 32-bit sums that become f32, and results f16" if integers else "f16 as results are, sums f32" }}. A workgroup computes a tile of {{ tile_m }} x {{ tile_n }} elements in steps of
// {{ tile_k }}. In SPIR-V, matrices of {{ size }} x {{ size }} here are those of the tile, and loads and stores in functions `tensor_..` are of parts of tensors,
// of which in `tensor_clamped_..` what lies beyond their ends is zero and is not written: see `spirv` in `crates/emit`. The driver
// divides matrices among subgroups and stages them. The sum runs over k in order.

enable wgpu_cooperative_matrix;

const DEPTH = {{ k }}u;

{{ declarations -}}
{{ functions -}}
{% include "matrix_elements.wgsl" %}
{% set factor_size = 8 if integers else size %}
{% macro matrix(use, element) %}coop_mat{{ factor_size }}x{{ factor_size }}<{{ element }}, {{ use }}>{% endmacro %}
{% if integers %}
// Matrices of 8 x 8 are of integers: operands of signed bytes, sums of 32 bits.
fn matrix_to_floats(sums: {{ matrix("C", "f32") }}) -> coop_mat{{ size }}x{{ size }}<f32, C> {
    return coop_mat{{ size }}x{{ size }}<f32, C>();
}

{% endif %}
{% set sums = "coop_mat" ~ size ~ "x" ~ size ~ "<f32, C>" %}
{% set f16 = "coop_mat" ~ size ~ "x" ~ size ~ "<f16, C>" %}
{% set place = "row: u32, column: u32, rows: u32, columns: u32" %}
{% for clamped in ["", "clamped_"] %}
{% if clamped %}
// The same of parts that may end beyond the tensors.
{% endif %}
// A part of left, from a row and a column on.
fn tensor_{{ clamped }}left({{ place }}) -> {{ matrix("A", "f16") }} {
    let at = 0u;
    let pitch = {{ left.pitch }}u;
    return coopLoadT<{{ matrix("A", "f16") }}>(&operand_{{ left.position }}[at], pitch);
}

// A part of right{{ ", whose rows are columns of the product" if right.transposed }}.
fn tensor_{{ clamped }}right({{ place }}) -> {{ matrix("B", "f16") }} {
    let at = 0u;
    let pitch = {{ right.pitch }}u;
    return coopLoad{{ "" if right.transposed else "T" }}<{{ matrix("B", "f16") }}>(&operand_{{ right.position }}[at], pitch);
}

{% for part in results %}{% set own = part.tensor.position %}
{% for each in part.given %}
// A part of what results take.
fn tensor_{{ clamped }}given{{ own }}_{{ loop.index0 }}({{ place }}) -> {{ f16 }} {
    let at = 0u;
    let pitch = {{ each.pitch }}u;
    return coopLoadT<{{ f16 }}>(&operand_{{ each.position }}[at], pitch);
}

{% endfor %}
fn tensor_{{ clamped }}result{{ own }}(result: {{ f16 }}, {{ place }}) {
    let at = 0u;
    let pitch = {{ part.tensor.pitch }}u;
    coopStoreT(result, &output_{{ own }}[at], pitch);
}

{% endfor %}
{% endfor %}
{% for part in results %}{% set own = part.tensor.position %}
{% macro parameters(ty) %}{% for _ in part.given %}, given{{ loop.index0 }}: {{ ty }}{% endfor %}{% endmacro %}
{% macro names() %}{% for _ in part.given %}, given{{ loop.index0 }}{% endfor %}{% endmacro %}
// What becomes of a sum of a whole tile.
fn result{{ own }}_of_sum(row: u32, column: u32, sum: f32{{ parameters("f32") }}, m0: i32, n0: i32) -> f32 {
    return finish{{ own }}(m0 + i32(row), n0 + i32(column), sum{{ names() }});
}

fn matrix_each_result{{ own }}_of_sum(sums: {{ sums }}{{ parameters(sums) }}, m0: i32, n0: i32) -> {{ sums }} {
    return sums;
}

// What becomes of a sum of another. Rows and columns past the last ones read those.
fn clamped_result{{ own }}_of_sum(row: u32, column: u32, sum: f32{{ parameters("f32") }}, m0: i32, n0: i32, rows: i32, columns: i32) -> f32 {
    return finish{{ own }}(min(m0 + i32(row), rows - 1), min(n0 + i32(column), columns - 1), sum{{ names() }});
}

fn matrix_each_clamped_result{{ own }}_of_sum(sums: {{ sums }}{{ parameters(sums) }}, m0: i32, n0: i32, rows: i32, columns: i32) -> {{ sums }} {
    return sums;
}

{% endfor %}
{% macro step(clamped_left, clamped_right) %}
            let left = tensor_{{ clamped_left }}left(u32(m0), k0, u32(rows), DEPTH);
{% if right.transposed %}
            let right = tensor_{{ clamped_right }}right(u32(n0), k0, u32(columns), DEPTH);
{% else %}
            let right = tensor_{{ clamped_right }}right(k0, u32(n0), DEPTH, u32(columns));
{% endif %}
            sum = coopMultiplyAdd(left, right, sum);
{% endmacro %}
{% macro sum_up(left, right) %}
        for (var k0 = 0u; k0 < {{ k - k % tile_k }}u; k0 += {{ tile_k }}u) {
{{ step(left, right) -}}
        }
{% if k % tile_k %}
        {
            let k0 = {{ k - k % tile_k }}u;
{{ step("clamped_", "clamped_") -}}
        }
{% endif %}
{% endmacro %}
{% macro finish(clamped, more) %}
{% for part in results %}{% set own = part.tensor.position %}
        {% if part.whole %}{{ "{" }}{% else %}if (subgroup_uniform(n0 >= {{ part.start }} && n0 < {{ part.end }})) {{ "{" }}{% endif %}

{% for _ in part.given %}
            let given{{ loop.index0 }} = matrix_to_f32(tensor_{{ clamped }}given{{ own }}_{{ loop.index0 }}(u32(m0), u32(n0), u32(rows), u32(columns)));
{% endfor %}
            let result = matrix_to_f16(matrix_each_{{ clamped }}result{{ own }}_of_sum({{ "matrix_to_floats(sum)" if integers else "sum" }}{% for _ in part.given %}, given{{ loop.index0 }}{% endfor %}, m0, n0{{ more }}));
            tensor_{{ clamped }}result{{ own }}(result, u32(m0), u32(n0 - {{ part.start }}), u32(rows), {{ part.end - part.start }}u);
        }
{% endfor %}
{% endmacro %}
{% include "workgroup.wgsl" %}
{{ body }}
    let columns = {{ n }};
    // Clamping costs the hardware half its speed.
    if (subgroup_uniform(m0 + {{ tile_m }} <= rows && n0 + {{ tile_n }} <= columns)) {
        var sum = {{ matrix("C", "f32") }}();
{{ sum_up("", "") -}}
{{ finish("", "") -}}
    } else {
        var sum = {{ matrix("C", "f32") }}();
{{ sum_up("clamped_", "clamped_" if n_width % tile_n else "") -}}
{{ finish("clamped_", ", rows, columns") -}}
    }
}
