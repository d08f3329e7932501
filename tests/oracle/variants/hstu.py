"""Variants of the HSTU family."""

from base import *

V, OPTIONS = {}, {}


def seqs(name, subs, delim="|"):
    return sequence(name, subs, f'sequence_delim: "{delim}"')


def vid(dim=8, name="video_id", rest=""):
    return feature("id", name, f"embedding_dim: {dim} num_buckets: 60 embedding_name: '{name}_e{dim}' {rest}")


def raw(name):
    return feature("raw", name)


def features(uih=("uih",), hist=(), cand=(), ctx=(8, 8)):
    out = [seqs(u, [vid(), *hist, raw("action_time"), raw("action_weight"), raw("watch_time_s")]) for u in uih]
    out.append(seqs("cand", [vid(), *hist, *cand, raw("query_time")]))
    return out + [feature("id", f"c{i}", f"embedding_dim: {d} num_buckets: 20 {'pooling: ' + chr(39) + 'mean' + chr(39) if i else ''}") for i, d in enumerate(ctx)]


J = "JAGGED_SEQUENCE"


def groups(uih=(("uih", "uih"),), hist=(), cand=(), ctx=2, kind="DEEP", stamps=True, extra=""):
    out = group("contextual", [f"c{i}" for i in range(ctx)], kind) if ctx else ""
    for name, source in uih:
        out += group(name, [f"{source}__{n}" for n in ("video_id", *hist)], J)
        out += group(f"{name}_action", [f"{source}__action_weight"], J) + group(f"{name}_watchtime", [f"{source}__watch_time_s"], J)
        out += group(f"{name}_timestamp", [f"{source}__action_time"], J) if stamps else ""
    out += group("candidate", [f"cand__{n}" for n in ("video_id", *hist, *cand)], J)
    return out + (group("candidate_timestamp", ["cand__query_time"], J) if stamps else "") + extra


ENC = "action_encoder { simple_action_encoder { action_embedding_dim: 3 action_weights: [1, 2, 64] %s } }"
WATCH = "watchtime_to_action_thresholds: [30, 120] watchtime_to_action_weights: [256, 512]"
AMLP, CMLP = "action_mlp { simple_mlp { hidden_dim: 7 } }", "content_mlp { simple_mlp { hidden_dim: 9 } }"
PAR = "{ parameterized_mlp { hidden_dim: 6 contextual_dropout_ratio: 0.0 } }"
PRE = "contextual_preprocessor { %s %s %s %s }"
BASE = PRE % (ENC % "", AMLP, "content_encoder { slice_content_encoder {} }", CMLP)
POS = "num_position_buckets: 40 num_time_buckets: 12 use_time_encoding: true time_bucket_increments: 600.0"
TASKS = ("task_configs { task_name: 'a' label_name: 'cand__act' task_bitmask: 1 losses { binary_cross_entropy {} } metrics { auc {} } }"
         "task_configs { task_name: 'b' label_name: 'cand__act' task_bitmask: 6 num_class: 2 losses { jrc_loss { session_name: 'c0' } } }"
         "task_configs { task_name: 'w' label_name: 'cand__watch' losses { l2_loss {} } weight: 0.3 }")
STU = "embedding_dim: 12 num_heads: 2 hidden_dim: 5 attention_dim: 4"


def hstu(stu="", pre=BASE, pos=POS, post="l2norm_postprocessor {}", layers=2, more="", name=""):
    return (f"hstu {{ {name} stu {{ {STU} output_dropout_ratio: 0.0 {stu} }} input_dropout_ratio: 0.0 attn_num_layers: {layers} positional_encoder {{ {pos} }} "
            f"input_preprocessor {{ {pre} }} output_postprocessor {{ {post} }} {more} }}")


def model(kind, hs, mlp=units(9), tasks=TASKS, rest=""):
    return f"{kind} {{ {' '.join(hs)} fusion_mtl_tower {{ mlp {mlp} {tasks} }} max_seq_len: 30 item_embedding_hidden_dim: 7 {rest} }} kernel: PYTORCH"


def add(name, hs=None, kind="dlrm_hstu", f=None, g=None, rest="", **kw):
    V[name] = pipeline(f or features(), g or groups(), model(kind, hs or [hstu()], rest=rest, **kw), labels=("cand__act", "cand__watch", "cand__rating"))


add("base")
T = "timestamp_layernorm_postprocessor { time_duration_period_units: [3600, 86400, 600] time_duration_units_per_period: [24, 7, 6] }"
for n, p in (("ln", "layernorm_postprocessor {}"), ("ts60", T.replace("600", "60")), ("ts", T), ("ts1", "timestamp_layernorm_postprocessor { time_duration_period_units: 86400 time_duration_units_per_period: 7 }")):
    add(f"post_{n}", [hstu(post=p)])
for n, p in (("none", ""), ("few", "num_position_buckets: 5"), ("fewtime", POS.replace("40", "6")), ("log", POS + " time_bucket_fn: 'log'"), ("sqrt", POS + " time_bucket_fn: 'sqrt'"),
             ("def", "num_position_buckets: 40 use_time_encoding: true"), ("nobuckets", "num_position_buckets: 40 num_time_buckets: 30 use_time_encoding: true")):
    add(f"pos_{n}", [hstu(pos=p)])
for n, s in (("gn", "use_group_norm: true"), ("alpha", "attn_alpha: 0.7"), ("alpha0", "attn_alpha: 0"), ("scale", "scaling_seqlen: 12"), ("maxattn", "max_attn_len: 3"), ("maxattn1", "max_attn_len: 1"),
             ("csl0", "contextual_seq_len: 0"), ("csl0_max", "contextual_seq_len: 0 max_attn_len: 2"), ("csl1", "contextual_seq_len: 1"), ("csl5", "contextual_seq_len: 4"), ("csl2", "contextual_seq_len: 2 max_attn_len: 2"),
             ("sla12", "sla_k1: 3 sla_k2: 4"), ("sla1", "sla_k1: 2"), ("sla2", "sla_k2: 5"), ("sla2small", "sla_k1: 1 sla_k2: 1"), ("sla_max", "sla_k1: 3 sla_k2: 2 max_attn_len: 2"), ("sla_csl", "sla_k1: 3 sla_k2: 1 contextual_seq_len: 0"),
             ("sla_gn", "sla_k1: 4 sla_k2: 3 use_group_norm: true scaling_seqlen: 9")):
    add(f"stu_{n}", [hstu(stu=s)])
for n, m, l in (("t1", "attn_truncation_split_layer: 1 attn_truncation_tail_len: 3", 2), ("t2", "attn_truncation_split_layer: 2 attn_truncation_tail_len: 1", 3), ("t20", "attn_truncation_split_layer: 1 attn_truncation_tail_len: 20", 2)):
    add(f"trunc_{n}", [hstu(more=m, layers=l)])
    add(f"trunc_{n}_sla", [hstu(stu="sla_k1: 3 sla_k2: 2", more=m, layers=l, post=T)])
    add(f"trunc_{n}_csl0", [hstu(stu="contextual_seq_len: 0", more=m, layers=l)])
    add(f"trunc_{n}_noctx", [hstu(more=m, layers=l)], f=features(ctx=()), g=groups(ctx=0), tasks=TASKS.replace("jrc_loss { session_name: 'c0' }", "softmax_cross_entropy {}"))
NOJRC = TASKS.replace("jrc_loss { session_name: 'c0' }", "softmax_cross_entropy {}")
for n, s in (("plain", ""), ("max", "max_attn_len: 2"), ("sla", "sla_k1: 2 sla_k2: 3"), ("csl2", "contextual_seq_len: 2")):
    add(f"noctx_{n}", [hstu(stu=s)], f=features(ctx=()), g=groups(ctx=0), tasks=NOJRC)
HB = [vid(4, "b"), raw("hr")]
for n, ce in (("slice", "slice_content_encoder {}"), ("pad", "pad_content_encoder {}"), ("mlp", f"mlp_content_encoder {{ uih_mlp {units(9, 7)} target_mlp {units(8, 7)} }}"), ("mlp1", f"mlp_content_encoder {{ uih_mlp {units(7)} target_mlp {units(7)} }}")):
    for p, cm in (("simple", CMLP), ("par", "content_mlp " + PAR)):
        wide = [raw("cr"), vid(4, "cb")]
        add(f"content_{n}_{p}", [hstu(pre=PRE % (ENC % WATCH, "action_mlp " + PAR if p == "par" else AMLP, f"content_encoder {{ {ce} }}", cm))], f=features(hist=HB, cand=wide), g=groups(hist=("b", "hr"), cand=("cr", "cb")))
add("noaction", [hstu(pre=PRE % ("", "", "content_encoder { slice_content_encoder {} }", CMLP))])
add("watch_groupless", [hstu()], g=groups().replace(group("uih_watchtime", ["uih__watch_time_s"], J), ""))
for n, en in (("on", ""), ("off", "enable_interleaving: false")):
    for c, rest in (("", ""), ("_concat", "concat_contextual_features: true")):
        pre = f"contextual_interleave_preprocessor {{ {ENC % WATCH} {AMLP} content_encoder {{ slice_content_encoder {{}} }} {CMLP} {en} }}"
        add(f"inter_{n}{c}", [hstu(pre=pre, post=T)], rest=rest)
        add(f"inter_{n}{c}_sla", [hstu(pre=pre, stu="sla_k1: 3 sla_k2: 2", more="attn_truncation_split_layer: 1 attn_truncation_tail_len: 5")], rest=rest)
    add(f"inter_{n}_nopos", [hstu(pre=pre, pos="num_position_buckets: 9")])
    add(f"inter_{n}_max", [hstu(pre=pre, stu="max_attn_len: 3")])
add("concat_uneven", f=features(ctx=(8, 4, 12)), g=groups(ctx=3), rest="concat_contextual_features: true")
add("ctx1", f=features(ctx=(8,)), g=groups(ctx=1))
add("ctx_sequence", f=features(ctx=(8, 8)), g=groups(ctx=2, kind="SEQUENCE"))
for n, p in (("", ""), ("_l2", "")):
    add(f"desc{n}", [hstu(post=T if n else "l2norm_postprocessor {}")], rest="sequence_timestamp_is_ascending: false")
add("desc_concat", f=features(ctx=(8, 4)), g=groups(ctx=2, kind="SEQUENCE"), rest="sequence_timestamp_is_ascending: false concat_contextual_features: true")
add("desc_inter", [hstu(pre=pre.replace("enable_interleaving: false", ""), post=T)], rest="sequence_timestamp_is_ascending: false")
add("desc_par", [hstu(pre=PRE % (ENC % WATCH, "action_mlp " + PAR, "content_encoder { slice_content_encoder {} }", "content_mlp " + PAR))], rest="sequence_timestamp_is_ascending: false")
add("desc_trunc", [hstu(stu="sla_k1: 3 sla_k2: 2", more="attn_truncation_split_layer: 1 attn_truncation_tail_len: 3")], rest="sequence_timestamp_is_ascending: false")
for i, m in enumerate([units(9, 5, rest="activation: 'nn.SiLU' use_ln: true"), units(9, rest="activation: ''"), units(9, 6, rest="use_bn: true"), units(8, rest="activation: 'Dice' bias: false"), units(8, rest="activation: 'nn.PReLU'")]):
    add(f"fusion_{i}", mlp=m)
add("tasks_more", tasks="task_configs { task_name: 'f' label_name: 'cand__act' task_bitmask: 2 losses { binary_focal_loss {} } } task_configs { task_name: 'r' label_name: 'cand__rating' num_class: 3 losses { softmax_cross_entropy { label_smoothing: 0.1 } } weight: 2.0 }"
    "task_configs { task_name: 'w' label_name: 'cand__watch' losses { l2_loss {} } } task_configs { task_name: 'wb' label_name: 'cand__act' task_bitmask: 8 losses { binary_cross_entropy { label_smoothing: 0.2 } } }")
add("stamps_off", [hstu(pos="num_position_buckets: 40")], g=groups(stamps=False))
CH = [("clk", "x1"), ("view", "x2"), ("buy", "x3")]
for k in (1, 2, 3):
    for n, s in (("plain", ""), ("sla", "sla_k1: 3 sla_k2: 2 use_group_norm: true"), ("max", "max_attn_len: 2")):
        hs = [hstu(name=f"name: '{c}'", stu=s, post=T if i else "l2norm_postprocessor {}", layers=1 + i, more="attn_truncation_split_layer: 1 attn_truncation_tail_len: 3" if i else "") for i, (c, _) in enumerate(CH[:k])]
        add(f"ultra{k}_{n}", hs, "ultra_hstu", f=features(uih=[s for _, s in CH[:k]]), g=groups(uih=CH[:k]))
add("ultra_default", [hstu()], "ultra_hstu")
add("ultra_desc", [hstu(name=f"name: '{c}'", post=T) for c, _ in CH[:2]], "ultra_hstu", f=features(uih=["x1", "x2"]), g=groups(uih=CH[:2]), rest="sequence_timestamp_is_ascending: false")
add("ultra_concat", [hstu(name=f"name: '{c}'", post=T) for c, _ in CH[:2]], "ultra_hstu", f=features(uih=["x1", "x2"], ctx=(8, 4)), g=groups(uih=CH[:2]), rest="concat_contextual_features: true")


def match(name, h, ctx=2, query=True, item=f"mlp {units(9)}", rest="similarity: COSINE temperature: 0.1 output_dim: 6", tower="", stamps=True):
    f = [seqs("uih", [vid(), raw("action_time"), raw("action_weight"), raw("watch_time_s")]), seqs("cand", [vid()])]
    f += [feature("id", f"c{i}", "embedding_dim: 8 num_buckets: 20") for i in range(ctx)] + [feature("raw", "request_time", "")] * query
    g = groups(ctx=ctx).replace(group("candidate_timestamp", ["cand__query_time"], J), "") + group("query_time", ["request_time"]) * query
    m = (f"hstu_match {{ user_tower {{ input: 'uih' {h} max_seq_len: 30 {tower} }} item_tower {{ input: 'candidate' {item} }} {rest} }} "
         "losses { softmax_cross_entropy {} } metrics { recall_at_k { top_k: 3 } } kernel: PYTORCH")
    V[name] = pipeline(f, g, m, labels=("cand__act",), data='force_base_data_group: true negative_sampler { input_path: "negatives.parquet" num_sample: 6 attr_fields: "video_id" item_id_field: "cand__video_id" }')
    OPTIONS[name] = {"negatives": 6, "types": {"cand__video_id": "list"}}


UP = "uih_preprocessor { %s %s }" % (ENC % "", AMLP)
UW = "uih_preprocessor { %s %s }" % (ENC % WATCH, AMLP)
for n, kw in (("base", {}), ("noctx", {"ctx": 0}), ("noquery", {"query": False}), ("noctx_noquery", {"ctx": 0, "query": False}), ("inner", {"rest": "output_dim: 5"}), ("noout", {"rest": "similarity: INNER_PRODUCT temperature: 2.0", "item": f"mlp {units(12)}"}),
              ("concat", {"tower": "concat_contextual_features: true"})):
    match(f"match_{n}", hstu(pre=UP), **kw)
match("match_noitemmlp", hstu(pre=UP), item="")
match("match_noaction", hstu(pre="uih_preprocessor { }"))
match("match_watch", hstu(pre=UW, post="layernorm_postprocessor {}"))
match("match_ts", hstu(pre=UW, post=T))
match("match_ts_noctx", hstu(pre=UW, post=T), ctx=0, query=False)
match("match_par", hstu(pre=UP.replace("simple_mlp { hidden_dim: 7 }", PAR[2:-2])))
match("match_sla", hstu(pre=UP, stu="sla_k1: 3 sla_k2: 2 use_group_norm: true", more="attn_truncation_split_layer: 1 attn_truncation_tail_len: 3"))
match("match_max", hstu(pre=UP, stu="max_attn_len: 2"))
match("match_max_noctx", hstu(pre=UP, stu="max_attn_len: 2"), ctx=0)
match("match_nopos", hstu(pre=UP, pos="num_position_buckets: 6"))
match("match_desc", hstu(pre=UP), rest="similarity: COSINE output_dim: 6 sequence_timestamp_is_ascending: false")
match("match_desc_noctx", hstu(pre=UP), ctx=0, rest="similarity: COSINE output_dim: 6 sequence_timestamp_is_ascending: false")
