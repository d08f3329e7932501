{% if row_bounds %}
    if (local < {{ row_bounds }}) {
        atomicStore(&row_low[local], 2147483647);
        atomicStore(&row_high[local], i32(-2147483648));
    }
    workgroupBarrier();
    if (local < ROWS && i0 + local < rows) {
        let i = i0 + local;
{{ row_statements }}
    }
    workgroupBarrier();
    if (local < {{ row_bounds }}) {
        row_bounds[local] = vec2<i32>(atomicLoad(&row_low[local]), atomicLoad(&row_high[local]));
    }
{% for n in range(row_bounds) %}
    let bounds{{ n }} = workgroupUniformLoad(&row_bounds[{{ n }}]);
{% endfor %}
{% endif %}
{{ exact_statements }}
{% if wraps %}
    // Whether an integer of the mask wraps around for any key, which is then asked for every pair.
    var wraps = false;
    if (keys > 0) {
        let j0 = 0;
        let j1 = keys - 1;
{{ tile_statements }}
        wraps = {{ wraps }};
    }
{% endif %}
