    var next = -KEYS;
    var whole_next = true;
{% if in_registers %}
    var counts_next = true;
{% endif %}
{% if masked %}
    var word_start = -WORD;
    var word = vec2<u32>();
{% if in_registers %}
    var own_word = vec2<u32>();
{% endif %}
{% endif %}
{% include "next_tile_of_page.wgsl" %}
