{% if stats %}
var<workgroup> partial_results: array<vec4<f32>, {{ tile_m }}>;
{% endif %}
{% for stat in stats %}
var<workgroup> statistic_{{ loop.index0 }}: array<f32, {{ tile_m }}>;
{% endfor %}
