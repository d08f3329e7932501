{% if row_bounds %}
// Bounds of what the mask reads from the tile's rows.
var<workgroup> row_low: array<atomic<i32>, {{ row_bounds }}>;
var<workgroup> row_high: array<atomic<i32>, {{ row_bounds }}>;
var<workgroup> row_bounds: array<vec2<i32>, {{ row_bounds }}>;
{% endif %}
