{{ operator }}

// The user-defined operator above, called for every invocation of every workgroup.
//
// Bindings: params (uniform), sizes and operand_N (read), output_0 (read_write), behind functions that take logical indices.

{{ declarations -}}
{{ functions -}}
{% include "workgroup.wgsl" %}
    {{ run }}(workgroup, i32(local_index));
}
