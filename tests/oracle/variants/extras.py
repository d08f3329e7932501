"""Corners of data, of the text format and of groups."""

from base import *
from features import D8, N8, QX, SEQ, FULL, EXACT, MT, sg, nested
import hstu as H

V, OPTIONS = {}, {}
BASE = pipeline(D8[:2], group("g", N8[:2]), MT)
V["text_commas"] = BASE.replace(" }", " },").replace("},\n", "}\n")
V["text_colons"] = BASE.replace(" {", ": {").replace(";", "")
V["text_semicolons"] = BASE.replace('embedding_dim: 8', 'embedding_dim: 8;')
V["text_comments"] = BASE.replace("\n", " # a { comment \n").replace('"', "'")
V["text_octal"] = pipeline(D8[:2], group("g", N8[:2]), MT, data='fg_encoded_multival_sep: "\\035"')
V["text_hex"] = pipeline(D8[:2], group("g", N8[:2]), MT, data='fg_encoded_multival_sep: "\\x1d"')
V["text_lists"] = BASE.replace("hidden_units: 12 hidden_units: 8", "hidden_units: [12, 8]").replace('feature_names: "a0" feature_names: "a1"', 'feature_names: ["a0", "a1"]')
V["text_blocks"] = BASE.replace("towers { input: 'g' mlp { hidden_units: 12 hidden_units: 8  } }", "towers: [{ input: 'g' mlp < hidden_units: 12 > }, { input: 'g' mlp { hidden_units: 5 } }]").replace("towers: [{ input: 'g' mlp < hidden_units: 12 > }, { input: 'g' mlp { hidden_units: 5 } }]", "towers: [{ input: 'g' mlp { hidden_units: 12 } }]")
V["text_join"] = BASE.replace('feature_names: "a0"', 'feature_names: "a" "0"')
for kind in ("int", "string", "list"):
    for d in ("", "fg_encoded_default_value: '3\\0035'"):
        n = f"ids_{kind}_{bool(d):d}"
        V[n] = pipeline(D8[:1] + [feature("id", "f", "embedding_dim: 8 num_buckets: 30 " + d)], group("g", ["a0", "f"]), MT)
        OPTIONS[n] = {"types": {"f": kind}}
for kind in ("map", "string", "list"):
    for pool in ("sum", "mean"):
        for d in ("", "fg_encoded_default_value: '3\\0035'"):
            n = f"weighted_{kind}_{pool}_{bool(d):d}"
            V[n] = pipeline(D8[:1] + [feature("id", "f", f"embedding_dim: 8 num_buckets: 30 weighted: true pooling: '{pool}' " + d)], group("w", ["f"], "WIDE") + group("deep", ["a0", "f"]),
                            "wide_and_deep { deep " + units(5) + " } " + BCE).replace('"w"', '"wide"')
            OPTIONS[n] = {"types": {"f": kind}}
for kind in ("string", "list"):
    V[f"raw3_{kind}"] = pipeline(D8[:1] + [feature("raw", "f", "value_dim: 3 fg_encoded_default_value: '1\\0032\\0033'")], group("g", ["a0", "f"]), MT)
    OPTIONS[f"raw3_{kind}"] = {"types": {"f": kind}}
V["raw_int"] = pipeline(D8[:1] + [feature("raw", "f", "fg_encoded_default_value: '2.5'")], group("g", ["a0", "f"]), MT)
OPTIONS["raw_int"] = {"types": {"f": "int"}}
WQ = [feature("id", "q1", "embedding_dim: 8 num_buckets: 30 weighted: true"), feature("id", "q2", "embedding_dim: 4 num_buckets: 20 pooling: 'mean' weighted: true"), feature("raw", "q3", "value_dim: 2 fg_encoded_default_value: '1\\0032'")]
V["query_weighted"] = nested("sequence_encoders { din_encoder { input: 'c' attn_mlp " + units(9, 5) + " } }", sg(["q1", "q2", "q3", "s__x", "s__m", "s__v"]), D8[:1] + WQ + [SEQ])
for kind in ("list", "string", "nested"):
    for dim, vd in (("id", "value_dim: 0"), ("id", "value_dim: 1"), ("id", "value_dim: 3 pooling: 'mean'"), ("raw", ""), ("raw", "value_dim: 2")):
        for d in ("", "fg_encoded_default_value: '3'" if "2" not in vd else "fg_encoded_default_value: '3\\0035'"):
            n = f"steps_{kind}_{dim}_{vd[-1:].strip(chr(39)) or 0}_{vd[11:12]}_{bool(d):d}"
            rest = f"embedding_dim: 8 num_buckets: 30 {vd} {d}" if dim == "id" else f"{vd} {d}"
            V[n] = nested("sequence_encoders { pooling_encoder { input: 'c' } } sequence_encoders { self_attention_encoder { input: 'c' multihead_attn_dim: 4 num_heads: 2 } }", sg(["s__x"]), D8[:1] + [sequence("s", [feature(dim, "x", rest)])])
            OPTIONS[n] = {"types": {"s__x": kind}}
V["one_row"] = pipeline(D8 + QX + [SEQ], group("g", N8, rest=sg(FULL) + "sequence_encoders { din_encoder { input: 'c' attn_mlp " + units(4) + " } }"), MT)
OPTIONS["one_row"] = {"rows": 1}
V["shared_tables"] = pipeline(D8 + QX + [SEQ], group("g", N8 + ["q1"], rest=sg(FULL) + "sequence_encoders { pooling_encoder { input: 'c' } }") + group("h", FULL, "SEQUENCE"),
                              "multi_tower_din { towers { input: 'g' mlp " + units(5) + " } din_towers { input: 'h' attn_mlp " + units(4) + " } final " + units(6) + " } " + BCE)
V["wide_fp16"] = pipeline(D8[:1] + [feature("id", "f", "embedding_dim: 8 num_buckets: 30 data_type: 'FP16'")], group("wide", ["a0", "f"], "WIDE") + group("deep", ["a0", "f"]), "wide_and_deep { deep " + units(5) + " } " + BCE)
V["wide_raw"] = pipeline(D8[:1] + [feature("raw", "f", "")], group("wide", ["a0", "f"], "WIDE") + group("deep", ["a0", "f"]), "wide_and_deep { deep " + units(5) + " } " + BCE)
V["two_sequences"] = pipeline(D8[:1] + QX + [SEQ, SEQ.replace('"s"', '"t"')], group("g", ["a0"], rest=sg(FULL) + sg([n.replace("s__", "t__") for n in FULL], "d") + "sequence_encoders { din_encoder { input: 'c' attn_mlp " + units(4) + " } } sequence_encoders { multi_window_din_encoder { input: 'd' windows_len: [3, 6] attn_mlp " + units(4) + " } }"), MT)
V["no_deep_features"] = nested("sequence_encoders { din_encoder { input: 'c' attn_mlp " + units(9, 5) + " } }", sg(FULL), names=())
JF = [H.seqs("uih", [H.vid(), feature("id", "tags", "embedding_dim: 4 num_buckets: 20 value_dim: 0 pooling: 'mean'"), feature("raw", "vec", "value_dim: 2"), H.raw("action_time"), H.raw("action_weight"), H.raw("watch_time_s")]),
      H.seqs("cand", [H.vid(), feature("id", "tags", "embedding_dim: 4 num_buckets: 20 value_dim: 0 pooling: 'mean'"), feature("raw", "vec", "value_dim: 2"), H.raw("query_time")]),
      feature("id", "c0", "embedding_dim: 8 num_buckets: 20 value_dim: 1"), feature("id", "c1", "embedding_dim: 8 num_buckets: 20 data_type: 'FP16' embedding_name: 'zz'")]
for n, kind in (("deep", "DEEP"), ("seq", "SEQUENCE")):
    V[f"jagged_multi_{n}"] = pipeline(JF, H.groups(hist=("tags", "vec"), kind=kind), H.model("dlrm_hstu", [H.hstu()]), labels=("cand__act", "cand__watch", "cand__rating"))
V["hstu_one_row"] = V["jagged_multi_deep"]
OPTIONS["hstu_one_row"] = {"rows": 1}
V["ctx_raw"] = pipeline(JF[:2] + [feature("raw", "c0", "value_dim: 8 fg_encoded_default_value: '1'".replace("'1'", "'" + "\\003".join("12345678") + "'")), JF[3]], H.groups(hist=("tags", "vec")), H.model("dlrm_hstu", [H.hstu()], tasks=H.NOJRC), labels=("cand__act", "cand__watch", "cand__rating"))
