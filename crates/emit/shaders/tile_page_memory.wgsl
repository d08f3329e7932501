{% if masked %}
// Keys of tiles that are decided at once, and of those, a bit each, which may count and which do wholly{{ ", for the rows of each subgroup" if in_registers }}.
const PAGE = KEYS * 128;
const WORD = KEYS * 32;
var<workgroup> possible_tiles: array<atomic<u32>, 4{{ " * PARTS" if in_registers }}>;
var<workgroup> whole_tiles: array<atomic<u32>, 4{{ " * PARTS" if in_registers }}>;
var<workgroup> tile_words: array<vec2<u32>, 4>;
{% endif %}
