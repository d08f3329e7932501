    // Finds the tile from `next` on that counts, and whether it does wholly.
    while (next < keys) {
{% if masked %}
        if (next % SPAN == 0) {
            let j0 = next;
            let j1 = min(j0 + SPAN, keys) - 1;
{{ tile_statements }}
            if (!possible) {
                next += SPAN;
                continue;
            }
        }
{% endif %}
        let j0 = next;
        let j1 = min(j0 + KEYS, keys) - 1;
{{ tile_statements }}
        if (possible) {
            whole_next = always && j0 + KEYS <= keys;
            break;
        }
        next += KEYS;
    }
