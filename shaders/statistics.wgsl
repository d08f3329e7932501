{% for stat in stats %}

    for (var item = local; item < TILE_M * 4; item += THREADS) {
        let row = item / 4;
        var total = vec4<f32>({{ stat.identity }});
        if (m0 + row < rows) {
            for (var k = (item % 4) * 4; k < {{ stat.extent }}; k += 16) {
                let value = stat_{{ loop.index0 }}({{ batch }}m0 + row, k{{ stat.earlier }});
                total = {{ stat.join }};
            }
        }
        partial_results[row][item % 4] = {{ stat.total }};
    }
    workgroupBarrier();
    for (var row = local; row < TILE_M; row += THREADS) {
        let total = partial_results[row];
        statistic_{{ loop.index0 }}[row] = {{ stat.total }};
    }
    workgroupBarrier();
{% endfor %}
