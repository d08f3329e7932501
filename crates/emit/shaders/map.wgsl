// Pointwise: outputs[...] = f(loads) at every point of a loop.
//
// Bindings: params (uniform), sizes and operand_N (read), output_N (read_write).
// A thread computes groups of four neighbouring points of the last coordinate, or one point where nothing aligns.

{{ declarations -}}
{{ functions -}}
{% include "workgroup.wgsl" %}
    let local = i32(local_index);
{{ body }}
}
