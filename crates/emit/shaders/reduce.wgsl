// Row reductions: statistics over the last coordinate, then outputs that read them.
//
// Bindings: params (uniform), sizes and operand_N (read), output_N (read_write).
// {{ row_threads }} threads reduce a row; a workgroup has {{ threads // row_threads }} rows. A thread combines every {{ row_threads }}th group of
// columns in order, then a tree combines the threads, in an order that the width alone decides: {{ "by exchange within a subgroup" if shuffles else "in workgroup memory" }}.

const ROW_THREADS = {{ row_threads }};
const ROWS = {{ threads // row_threads }};

{{ declarations -}}
{% if not shuffles and row_threads > 1 %}
var<workgroup> partial_results: array<{{ widest }}, {{ threads }}>;
{% endif %}
{% for combination in combinations if row_threads > 1 %}

{% if shuffles %}
// Combines `value` over the threads of a row, which are neighbours in a subgroup.
fn {{ combination.name }}(local: i32, value: {{ combination.type }}) -> {{ combination.type }} {
    var a = value;
    for (var half = ROW_THREADS / 2; half > 0; half = half / 2) {
        let b = subgroupShuffleXor(a, u32(half));
        a = {{ combination.join }};
    }
    return a;
}
{% else %}
// Combines `value` over the threads of a row.
fn {{ combination.name }}(local: i32, value: {{ combination.type }}) -> {{ combination.type }} {
    let thread = local % ROW_THREADS;
    partial_results[local] = {{ combination.widen }}value{{ combination.end }};
    workgroupBarrier();
    for (var half = ROW_THREADS / 2; half > 0; half = half / 2) {
        if (thread < half) {
            let a = partial_results[local]{{ combination.narrow }};
            let b = partial_results[local + half]{{ combination.narrow }};
            partial_results[local] = {{ combination.widen }}{{ combination.join }}{{ combination.end }};
        }
        workgroupBarrier();
    }
    let result = partial_results[local - thread]{{ combination.narrow }};
    workgroupBarrier();
    return result;
}
{% endif %}
{% endfor %}

{{ functions -}}
{% set with_lanes = shuffles %}
{% include "workgroup.wgsl" %}
{% if shuffles %}
    let local = i32(subgroup * {{ subgroup }} + lane);
{% else %}
    let local = i32(local_index);
{% endif %}
    let thread = local % ROW_THREADS;
    let rows = {{ rows }};
    let wanted = workgroup * ROWS + local / ROW_THREADS;
    let inside = wanted < rows;
    // Rows beyond the last repeat it, so that all threads meet at barriers.
    let row = min(wanted, rows - 1);
{{ body }}
}
