    // Finds the next tile that counts, and whether it does wholly{{ ", for the rows of this subgroup" if in_registers }}.
{% if masked %}
    loop {
        if (word.x != 0u) {
            let bit = firstTrailingBit(word.x);
            next = word_start + i32(bit) * KEYS;
{% if in_registers %}
            counts_next = ((own_word.x >> bit) & 1u) == 1u;
            whole_next = ((own_word.y >> bit) & 1u) == 1u;
{% else %}
            whole_next = ((word.y >> bit) & 1u) == 1u;
{% endif %}
            word.x &= word.x - 1u;
            break;
        }
        word_start += WORD;
        if (word_start >= keys) {
            next = keys;
            break;
        }
        if (word_start % PAGE == 0) {
            if (local < 4{{ " * PARTS" if in_registers }}) {
                atomicStore(&possible_tiles[local], 0u);
                atomicStore(&whole_tiles[local], 0u);
            }
            workgroupBarrier();
{% if in_registers %}
            let tiles = (min(PAGE, keys - word_start) + KEYS - 1) / KEYS;
            for (var item = local; item < tiles * PARTS; item += THREADS) {
                let part = item % PARTS;
                let number = item / PARTS;
                let j0 = word_start + number * KEYS;
                let first_of_part = i0 + part * PART_ROWS;
                if (first_of_part < rows) {
                    let i0 = first_of_part;
                    let i1 = min(i0 + PART_ROWS, rows) - 1;
                    let j1 = min(j0 + KEYS, keys) - 1;
{{ tile_statements }}
                    let at = part * 4 + (number >> 5u);
                    let bit = 1u << (u32(number) & 31u);
                    if (possible) {
                        atomicOr(&possible_tiles[at], bit);
                    }
                    if (always && j0 + KEYS <= keys) {
                        atomicOr(&whole_tiles[at], bit);
                    }
                }
            }
{% else %}
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
{% endif %}
            workgroupBarrier();
            if (local < 4) {
{% if in_registers %}
                var possible = 0u;
                for (var part = 0; part < PARTS; part += 1) {
                    possible |= atomicLoad(&possible_tiles[part * 4 + local]);
                }
                tile_words[local] = vec2<u32>(possible, 0u);
{% else %}
                tile_words[local] = vec2<u32>(atomicLoad(&possible_tiles[local]), atomicLoad(&whole_tiles[local]));
{% endif %}
            }
        }
{% if in_registers %}
        let own_at = subgroup * 4u + u32(word_start % PAGE / WORD);
        own_word = vec2<u32>(atomicLoad(&possible_tiles[own_at]), atomicLoad(&whole_tiles[own_at]));
{% endif %}
        word = workgroupUniformLoad(&tile_words[word_start % PAGE / WORD]);
    }
{% else %}
    next += KEYS;
    whole_next = next + KEYS <= keys;
{% endif %}
