{% if by_index %}
// Rows combined by index: for every result, value(n) over the rows n whose index is the result's row, in ascending order.
{% else %}
// Rows combined: for every result, value(n) over the rows n of its sample, or over all rows.
{% endif %}
//
// Bindings: params (uniform), sizes and operand_N (read), output_N (read_write).
{% if by_index %}
// A workgroup has {{ owners }} rows of results by {{ places // owners }} {{ "groups of four columns" if lanes == 4 else "columns" }}, and passes over all rows,
// {{ chunk }} at a time: threads look up indices and mark, in a bit mask of each row of results, which rows count for it; then
// each thread adds what its mask has{{ ", every " ~ parts ~ "th word of it, and a tree combines those that share a result" if parts > 1 }}.
{% else %}
// {{ parts }} threads share a result, {{ "four columns" if lanes == 4 else "an element" }}: each combines every {{ parts }}th row in order, then a tree combines the threads.
{% endif %}

const PLACES = {{ places }};
{% if by_index %}
const OWNERS = {{ owners }};
const CHUNK = {{ chunk }};
const WORDS = {{ chunk // 32 }};
// Words from one mask to the next: an odd number, so that they lie in different banks of memory.
const PITCH = WORDS + 1;
{% endif %}

{{ declarations -}}
{% if by_index %}
var<workgroup> masks: array<atomic<u32>, {{ owners * (chunk // 32 + 1) }}>;
{% endif %}
{% if parts > 1 %}
var<workgroup> partial_results: array<{{ type }}, {{ threads }}>;
{% for combination in combinations %}

// Combines `value` over the threads that share a result.
fn {{ combination.name }}(local: i32, value: {{ type }}) -> {{ type }} {
    partial_results[local] = value;
    workgroupBarrier();
    for (var half = {{ parts // 2 }}; half > 0; half = half / 2) {
        if (local < half * PLACES) {
            let a = partial_results[local];
            let b = partial_results[local + half * PLACES];
            partial_results[local] = {{ combination.join }};
        }
        workgroupBarrier();
    }
    let result = partial_results[local % PLACES];
    workgroupBarrier();
    return result;
}
{% endfor %}
{% endif %}

{{ functions -}}
{% include "workgroup.wgsl" %}
    let local = i32(local_index);
    let place = local % PLACES;
    let part = local / PLACES;
{{ body }}
    let rows = {{ rows }};
{{ totals -}}
{% if by_index %}
    for (var start = 0; start < rows; start += CHUNK) {
        for (var word = local; word < OWNERS * PITCH; word += {{ threads }}) {
            atomicStore(&masks[word], 0u);
        }
        workgroupBarrier();
        let end = min(rows, start + CHUNK);
        for (var n = start + local; n < end; n += {{ threads }}) {
{{ index }}
            if (wanted >= first && wanted < past) {
                let bit = n - start;
                atomicOr(&masks[(wanted - first) * PITCH + (bit >> 5u)], 1u << u32(bit & 31));
            }
        }
        workgroupBarrier();
        for (var word = part; word < WORDS; word += {{ parts }}) {
            var bits = atomicLoad(&masks[owner * PITCH + word]);
            while (bits != 0u) {
                let n = start + word * 32 + i32(firstTrailingBit(bits));
                bits = bits & (bits - 1u);
{{ element }}
            }
        }
        workgroupBarrier();
    }
{% else %}
    if (part < rows) {
{% if common %}
{{ common }}
{% endif %}
        for (var n = part; n < rows; n += {{ step }}) {
{{ element }}
        }
    }
{% endif %}
{{ results -}}
}
