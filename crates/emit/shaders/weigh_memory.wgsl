{# Scores of a tile of pairs that pass through workgroup memory to become weights there. `t` is the tile: the products of `together`
matrices of rows lie side by side. #}
{% from "online_softmax.wgsl" import combine, largest_of, sum_of %}
{% from "matrices.wgsl" import is_item, lane_group, lane_row, left, origin, own_row, right, sums_of %}
{# Dot products of a row matrix with all columns of a subgroup. #}
{% macro multiply(t, dot, first, stage) %}
{% for r in range(first, first + t.together) %}{% for c in range(t.part_keys // t.size) %}
        var matrix{{ dot.value }}_{{ r }}_{{ c }} = {{ sums_of(t) }}();
{% endfor %}{% endfor %}
{% for d in range(0, dot.depth, t.size) %}{% for c in range(t.part_keys // t.size) %}
        let other{{ dot.value }}_{{ first }}_{{ c }}_{{ d }} = coopLoad<{{ right(t) }}>(&tile_memory[(part * {{ t.part_keys }}u + {{ c * t.size }}u) * {{ dot.tile_pitch }}u + {{ dot.base + d // 4 }}u], {{ dot.tile_pitch }}u);
{% for r in range(first, first + t.together) %}
        matrix{{ dot.value }}_{{ r }}_{{ c }} = coopMultiplyAdd(rows{{ dot.value }}_{{ r }}_{{ d }}, other{{ dot.value }}_{{ first }}_{{ c }}_{{ d }}, matrix{{ dot.value }}_{{ r }}_{{ c }});
{% endfor %}
{% endfor %}{% endfor %}
{% for r in range(first, first + t.together) %}{% for c in range(t.part_keys // t.size) %}
{% if stage %}
        // naga's writer of SPIR-V wants the index in a name.
        let to{{ dot.value }}_{{ r }}_{{ c }} = stage{{ r - first }}_{{ c }} + {{ stage * t.size }}u * STAGE_PITCH;
        coopStoreT(matrix{{ dot.value }}_{{ r }}_{{ c }}, &stage[to{{ dot.value }}_{{ r }}_{{ c }}], pitch);
{% else %}
        coopStoreT(matrix{{ dot.value }}_{{ r }}_{{ c }}, &stage[stage{{ r - first }}_{{ c }}], pitch);
{% endif %}
{% endfor %}{% endfor %}
        subgroupBarrier();
{% endmacro %}
{# The pairs of a group of four columns: a lane processes `stage_items` of them per row matrix. #}
{% macro place(t, r, n) %}
        let row{{ r }}_{{ n }} = {{ own_row(t) }} + {{ r * t.size }}u + {{ lane_row(t, n, t.part_keys) }};
        let i{{ r }}_{{ n }} = min({{ origin(t) }} + i32(row{{ r }}_{{ n }}), rows - 1);
        let group{{ r }}_{{ n }} = {{ lane_group(t, n, t.part_keys) }};
        let j{{ r }}_{{ n }} = j0 + i32(part * {{ t.part_keys }}u + group{{ r }}_{{ n }} * 4u);
        // Groups beyond the last other read the last one, and do not count.
        let near{{ r }}_{{ n }} = min(j{{ r }}_{{ n }}, (keys - 1) & -4);
{% endmacro %}
{% macro staged(t, r, n) %}stage[own_stage + {{ lane_row(t, n, t.part_keys) }} * STAGE_PITCH + {{ r % t.together * t.part_keys // 4 }}u + {{ lane_group(t, n, t.part_keys) }}]{% endmacro %}
{% macro weigh(t, r, n, kept) %}weigh0(c0, c1, i{{ r }}_{{ n }}, near{{ r }}_{{ n }}, {{ kept }}{% for dot in t.dots %}, product{{ dot.value }}_{{ r }}_{{ n }}{% endfor %}){% endmacro %}
{# The included pairs, if some are not. #}
{% macro decide(t, r, n, masked) %}
            let inside{{ r }}_{{ n }} = (j{{ r }}_{{ n }} + vec4<i32>(0, 1, 2, 3)) < vec4<i32>(keys);
            let counts{{ r }}_{{ n }} = inside{{ r }}_{{ n }}{% if masked %} & keep(c0, c1, i{{ r }}_{{ n }}, near{{ r }}_{{ n }}, inside{{ r }}_{{ n }}){% endif %};
{% endmacro %}
{# Weights of the row matrices from `first` on, one group of four columns at a time: their number per lane follows from the subgroup size. #}
{% macro weigh_items(t, first, masked) %}
        for (var item = lane; item < {{ t.together * t.size * t.part_keys // 4 }}u; item += subgroup_size) {
            let column = item % {{ t.together * t.part_keys // 4 }}u;
            let stage_row = item / {{ t.together * t.part_keys // 4 }}u;
            let group = column % {{ t.part_keys // 4 }}u;
            let row = own_row + ({{ first }}u + column / {{ t.part_keys // 4 }}u) * {{ t.size }}u + stage_row;
            let i = min(own_i0 + i32(row), rows - 1);
            let j = j0 + i32(group * 4u);
            // Groups beyond the last other read the last one, and do not count.
            let near = min(j, (keys - 1) & -4);
            var kept = vec4<bool>(true);
            if (!whole) {
                kept = (j + vec4<i32>(0, 1, 2, 3)) < vec4<i32>(keys);
{% if masked %}
                kept &= keep(c0, c1, i, near, kept);
{% endif %}
            }
            let weights = weigh0(c0, c1, i, near, kept{% for dot in t.dots %}, stage[own_stage + {{ loop.index0 * t.size }}u * STAGE_PITCH + stage_row * STAGE_PITCH + column]{% endfor %});
{% for sum in t.sums %}
            weight_tile[{{ sum.base }}u + row * WEIGHT_PITCH + group] = vec4<f16>(select(vec4<f32>(), weights.of{{ sum.value }}, kept));
{% endfor %}
        }
{% endmacro %}
{# Weights of the row matrices from `first` on. #}
{% macro weigh_rows(t, first, masked) %}
{% set rows = range(first, first + t.together) %}
{% for r in rows %}{% for n in range(t.stage_items) %}
{{ place(t, r, n) -}}
{% if t.guarded %}
        var kept{{ r }}_{{ n }} = vec4<bool>(true);
{% else %}
        var weights{{ r }}_{{ n }} = {{ weigh(t, r, n, "vec4<bool>(true)") }};
{% endif %}
{% endfor %}{% endfor %}
        if (!whole) {
{% for r in rows %}{% for n in range(t.stage_items) %}
{{ decide(t, r, n, masked) -}}
{% if t.guarded %}
            kept{{ r }}_{{ n }} = counts{{ r }}_{{ n }};
{% else %}
{% for sum in t.sums %}
            weights{{ r }}_{{ n }}.of{{ sum.value }} = select(vec4<f32>(), weights{{ r }}_{{ n }}.of{{ sum.value }}, counts{{ r }}_{{ n }});
{% endfor %}
{% endif %}
{% endfor %}{% endfor %}
        }
{% for r in rows %}{% for n in range(t.stage_items) %}
{% if t.guarded %}
        let weights{{ r }}_{{ n }} = {{ weigh(t, r, n, "kept" ~ r ~ "_" ~ n) }};
{% endif %}
{% for sum in t.sums %}
        weight_tile[{{ sum.base }}u + row{{ r }}_{{ n }} * WEIGHT_PITCH + part * {{ t.part_keys // 4 }}u + group{{ r }}_{{ n }}] = vec4<f16>(weights{{ r }}_{{ n }}.of{{ sum.value }});
{% endfor %}
{% endfor %}{% endfor %}
{% endmacro %}
{% macro rescale(t, r, n) %}stage[own_stage + {{ lane_row(t, n, t.size) }} * STAGE_PITCH + {{ lane_group(t, n, t.size) }}] *= row_scale[{{ own_row(t) }} + {{ r * t.size }}u + {{ lane_row(t, n, t.size) }}];{% endmacro %}
{# The exponentials of a tile of scores, and their sums per row. #}
{% macro soften(t, masked) %}
{% set sum = t.sums[0] %}
{% for r in range(t.row_matrices) %}{% for n in range(t.stage_items) %}
{{ place(t, r, n) -}}
{% if t.guarded %}
        var kept{{ r }}_{{ n }} = vec4<bool>(true);
{% else %}
        var excess{{ r }}_{{ n }} = {{ weigh(t, r, n, "vec4<bool>(true)") }}.of{{ sum.value }} - row_shift[row{{ r }}_{{ n }}];
{% endif %}
{% endfor %}{% endfor %}
        if (!whole) {
{% for r in range(t.row_matrices) %}{% for n in range(t.stage_items) %}
{{ decide(t, r, n, masked) -}}
{% if t.guarded %}
            kept{{ r }}_{{ n }} = counts{{ r }}_{{ n }};
{% else %}
            excess{{ r }}_{{ n }} = select(vec4<f32>(LOWEST), excess{{ r }}_{{ n }}, counts{{ r }}_{{ n }});
{% endif %}
{% endfor %}{% endfor %}
        }
        // Not by the largest, since NaN in one row must not hide what exceeds the shift of another.
        var exceeds = vec4<bool>(false);
{% for r in range(t.row_matrices) %}{% for n in range(t.stage_items) %}
{% if t.guarded %}
        var excess{{ r }}_{{ n }} = select(vec4<f32>(LOWEST), {{ weigh(t, r, n, "kept" ~ r ~ "_" ~ n) }}.of{{ sum.value }} - row_shift[row{{ r }}_{{ n }}], kept{{ r }}_{{ n }});
{% endif %}
        exceeds = exceeds | (excess{{ r }}_{{ n }} > vec4<f32>(MOST_EXCESS));
{% endfor %}{% endfor %}
        while (subgroupAny(any(exceeds))) {
{% for r in range(t.row_matrices) %}{% for n in range(t.stage_items) %}
            // Not by `!=`, which drivers may take for false if the score is NaN.
            let counted{{ r }}_{{ n }} = !(excess{{ r }}_{{ n }} == vec4<f32>(LOWEST));
            let again{{ r }}_{{ n }} = {{ staged(t, r, n) }};
            let scored{{ r }}_{{ n }} = weigh0(c0, c1, i{{ r }}_{{ n }}, near{{ r }}_{{ n }}, counted{{ r }}_{{ n }}, again{{ r }}_{{ n }}).of{{ sum.value }};
            var largest{{ r }}_{{ n }} = {{ largest_of("scored" ~ r ~ "_" ~ n) }};
{{ combine("largest" ~ r ~ "_" ~ n, "max", t.keys // 4) -}}
            if (group{{ r }}_{{ n }} == 0u{% if t.varying %} && {{ is_item(t, n, t.part_keys) }}{% endif %}) {
                raise(row{{ r }}_{{ n }}, largest{{ r }}_{{ n }});
            }
{% endfor %}{% endfor %}
            {{ t.branch_barrier }}
            // Nothing lies above its row's shift now.
            exceeds = vec4<bool>(false);
{% for r in range(t.row_matrices) %}{% for n in range(t.stage_items) %}
            total{{ r }}_{{ n }} *= row_scale[row{{ r }}_{{ n }}];
            excess{{ r }}_{{ n }} = select(vec4<f32>(LOWEST), scored{{ r }}_{{ n }} - row_shift[row{{ r }}_{{ n }}], counted{{ r }}_{{ n }});
{% endfor %}{% endfor %}
            {{ t.branch_barrier }}
{% for r in range(t.row_matrices) %}{% for c in range(sum.matrices) %}
            coopStoreT(sum{{ sum.value }}_{{ r }}_{{ c }}, &stage[own_stage], pitch);
            {{ t.branch_barrier }}
{% for n in range(t.element_items) %}
{% if t.varying %}
            if ({{ is_item(t, n, t.size) }}) {
                {{ rescale(t, r, n) }}
            }
{% else %}
            {{ rescale(t, r, n) }}
{% endif %}
{% endfor %}
            {{ t.branch_barrier }}
            sum{{ sum.value }}_{{ r }}_{{ c }} = coopLoadT<{{ sums_of(t) }}>(&stage[own_stage], pitch);
            {{ t.branch_barrier }}
{% endfor %}{% endfor %}
        }
{% for r in range(t.row_matrices) %}{% for n in range(t.stage_items) %}
        let weight{{ r }}_{{ n }} = exp(excess{{ r }}_{{ n }});
        total{{ r }}_{{ n }} += {{ sum_of("weight" ~ r ~ "_" ~ n) }};
        weight_tile[row{{ r }}_{{ n }} * WEIGHT_PITCH + group{{ r }}_{{ n }}] = vec4<f16>(weight{{ r }}_{{ n }});
{% endfor %}{% endfor %}
{% endmacro %}
{# Adds the contribution of a tile of columns. #}
{% macro step(t, masked) %}
{% set by_item = t.varying and not t.softmax %}
        let pitch = STAGE_PITCH;
{% for r in range(t.together) %}{% for c in range(t.part_keys // t.size) %}
        let stage{{ r }}_{{ c }} = own_stage + {{ (r * t.part_keys + c * t.size) // 4 }}u;
{% endfor %}{% endfor %}
{% for first in range(0, t.row_matrices, t.together) %}
{% for dot in t.dots %}
{{ multiply(t, dot, first, loop.index0 if by_item else 0) -}}
{% if not by_item %}
{% for r in range(first, first + t.together) %}{% for n in range(t.stage_items) %}
        let product{{ dot.value }}_{{ r }}_{{ n }} = {{ staged(t, r, n) }};
{% endfor %}{% endfor %}
{% if t.together < t.row_matrices or t.dots | length > 1 %}
        subgroupBarrier();
{% endif %}
{% endif %}
{% endfor %}
{% if by_item %}
{{ weigh_items(t, first, masked) -}}
        subgroupBarrier();
{% elif t.softmax %}
{{ soften(t, masked) -}}
{% else %}
{{ weigh_rows(t, first, masked) -}}
{% endif %}
{% endfor %}
        {{ "workgroupBarrier" if t.split > 1 else "subgroupBarrier" }}();
{% for k in range(0, t.keys, t.size) %}{% for sum in t.sums %}
{% for r in range(t.row_matrices) %}
        let left{{ sum.value }}_{{ r }}_{{ k }} = coopLoadT<{{ left(t) }}>(&weight_tile[{{ sum.base }}u + ({{ own_row(t) }} + {{ r * t.size }}u) * WEIGHT_PITCH + {{ k // 4 }}u], WEIGHT_PITCH);
{% endfor %}
{% for c in range(sum.matrices) %}
        let element{{ sum.value }}_{{ c }}_{{ k }} = coopLoadT<{{ right(t) }}>(&tile_memory[{{ sum.tile_base + k * sum.tile_pitch }}u + part * {{ sum.matrices * t.size // 4 }}u + {{ c * t.size // 4 }}u], {{ sum.tile_pitch }}u);
{% for r in range(t.row_matrices) %}
        sum{{ sum.value }}_{{ r }}_{{ c }} = coopMultiplyAdd(left{{ sum.value }}_{{ r }}_{{ k }}, element{{ sum.value }}_{{ c }}_{{ k }}, sum{{ sum.value }}_{{ r }}_{{ c }});
{% endfor %}
{% endfor %}
{% endfor %}{% endfor %}
{% endmacro %}
