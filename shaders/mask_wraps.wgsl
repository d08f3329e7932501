{% if wraps %}
    // Whether an integer of the mask wraps around for any key, which is then asked for every pair.
    var wraps = false;
    if (keys > 0) {
        let j0 = 0;
        let j1 = keys - 1;
{{ tile_statements }}
        wraps = {{ wraps }};
    }
{% endif %}
