{% for stat in stats %}{% set position = loop.index0 %}

    for (var item = local; item < TILE_M * 4; item += THREADS) {
        let row = item / 4;
        var total = vec4<f32>({{ stat.identity }});
        if (m0 + row < rows) {
            for (var k = (item % 4) * 4; k < {{ stat.extent }}; k += {{ 16 * stat_loads }}) {
{% for n in range(stat_loads) %}
                var value{{ n }} = vec4<f32>({{ stat.identity }});
{% endfor %}
{% for n in range(stat_loads) %}
                if (k + {{ n * 16 }} < {{ stat.extent }}) {
                    value{{ n }} = stat_{{ position }}({{ batch }}m0 + row, k + {{ n * 16 }}{{ stat.earlier }});
                }
{% endfor %}
{% for n in range(stat_loads) %}
                {
                    let value = value{{ n }};
                    total = {{ stat.join }};
                }
{% endfor %}
            }
        }
        partial_results[row][item % 4] = {{ stat.total }};
    }
    workgroupBarrier();
    for (var row = local; row < TILE_M; row += THREADS) {
        let total = partial_results[row];
        statistic_{{ position }}[row] = {{ stat.total }};
    }
    workgroupBarrier();
{% endfor %}
