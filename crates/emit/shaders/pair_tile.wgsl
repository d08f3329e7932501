{% include "workgroup.wgsl" %}
    let local = i32(local_index);
    let tile = workgroup / HEADS;
    let c1 = workgroup - tile * HEADS;
{{ body }}
    let i1 = min(i0 + ROWS, rows) - 1;
