    // Finds the next tile that counts, and whether it does wholly.
{% if masked %}
    loop {
        if (word.x != 0u) {
            let bit = firstTrailingBit(word.x);
            next = word_start + i32(bit) * KEYS;
            whole_next = ((word.y >> bit) & 1u) == 1u;
            word.x &= word.x - 1u;
            break;
        }
        word_start += WORD;
        if (word_start >= keys) {
            next = keys;
            break;
        }
        if (word_start % PAGE == 0) {
            if (local < 4) {
                atomicStore(&possible_tiles[local], 0u);
                atomicStore(&whole_tiles[local], 0u);
            }
            workgroupBarrier();
            for (var j0 = word_start + local * KEYS; j0 < min(word_start + PAGE, keys); j0 += THREADS * KEYS) {
                let j1 = min(j0 + KEYS, keys) - 1;
{{ tile_statements }}
                let number = (j0 - word_start) / KEYS;
                let bit = 1u << (u32(number) & 31u);
                if (possible) {
                    atomicOr(&possible_tiles[number >> 5u], bit);
                }
                if (always && j0 + KEYS <= keys) {
                    atomicOr(&whole_tiles[number >> 5u], bit);
                }
            }
            workgroupBarrier();
            if (local < 4) {
                tile_words[local] = vec2<u32>(atomicLoad(&possible_tiles[local]), atomicLoad(&whole_tiles[local]));
            }
        }
        word = workgroupUniformLoad(&tile_words[word_start % PAGE / WORD]);
    }
{% else %}
    next += KEYS;
    whole_next = next + KEYS <= keys;
{% endif %}
