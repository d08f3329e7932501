    var next = -KEYS;
    var whole_next = true;
{% if masked %}
    var word_start = -WORD;
    var word = vec2<u32>();
{% endif %}
{% include "next_tile_of_page.wgsl" %}
