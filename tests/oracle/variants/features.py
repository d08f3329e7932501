"""Variants of features, groups, encoders and small modules."""

from base import *


def small(features, names, model=None, groups=None, **kw):
    model = model or "multi_tower { towers { input: 'g' mlp " + units(12, 8) + " } final " + units(8) + " } " + BCE
    return pipeline(features, groups or group("g", names), model, **kw)


def one(kind, rest, name="f"):
    return small(D8[:1] + [feature(kind, name, rest)], ["a0", name])


V = {}
V["basic_ids"] = small(D8, N8)
for kind in ("lookup", "match", "custom"):
    V[f"{kind}_dense"] = one(kind, "")
    V[f"{kind}_sparse"] = one(kind, "embedding_dim: 8 num_buckets: 12")
    V[f"{kind}_bound"] = one(kind, "embedding_dim: 4 boundaries: [1.0, 2.0, 3.5]")
    V[f"{kind}_vocab"] = one(kind, "embedding_dim: 4 vocab_list: ['a','b','c']")
    V[f"{kind}_vocab_def"] = one(kind, "embedding_dim: 4 vocab_list: ['a','b','c'] default_bucketize_value: 1")
V["lookup_v3"] = one("lookup", "value_dim: 3")
V["lookup_v0"] = one("lookup", "value_dim: 0")
V["lookup_v3_default"] = one("lookup", "value_dim: 3 fg_encoded_default_value: '1\\0032\\0033.5'")
V["custom_v3"] = one("custom", "value_dim: 3")
V["lookup_sparse_v0"] = one("lookup", "value_dim: 0 embedding_dim: 8 hash_bucket_size: 12 pooling: 'mean'")
V["expr_dense"] = one("expr", "")
V["expr_bound"] = one("expr", "embedding_dim: 8 boundaries: [0.1, 0.2]")
V["overlap_dense"] = one("overlap", "method: 'query_common_ratio'")
V["overlap_bound"] = one("overlap", "method: 'query_common_ratio' embedding_dim: 8 boundaries: [0.1, 0.2]")
V["combo"] = small(D8[:1] + ["combo_feature { feature_name: 'f' expression: ['user:a', 'item:b'] embedding_dim: 8 hash_bucket_size: 33 pooling: 'mean' }"], ["a0", "f"])
V["raw_v1"] = one("raw", "")
V["raw_default"] = one("raw", "fg_encoded_default_value: '1.5'")
V["raw_v4"] = one("raw", "value_dim: 4 fg_encoded_default_value: '1\\0032\\0033\\0034'")
V["raw_bound_def"] = one("raw", "embedding_dim: 8 boundaries: [1.0, 2.0] fg_encoded_default_value: '1'")
V["raw_bound_mean"] = one("raw", "embedding_dim: 8 boundaries: [1.0, 2.0] pooling: 'mean'")
V["autodis"] = one("raw", "embedding_dim: 8 autodis { num_channels: 5 temperature: 0.3 keep_prob: 0.7 }")
V["autodis_two"] = small([feature("raw", n, "embedding_dim: 8 autodis { num_channels: 5 }") for n in ("z", "b")] + D8[:1], ["z", "a0", "b"])
V["autodis_lookup"] = one("lookup", "embedding_dim: 8 autodis { num_channels: 3 keep_prob: 1.0 temperature: 1.0 }")
V["mlp_one"] = one("raw", "embedding_dim: 8 mlp {}")
V["mlp_two"] = small([feature("raw", n, "embedding_dim: 8 mlp {}") for n in ("z", "b")] + [feature("raw", "w", "embedding_dim: 4 mlp {}")], ["z", "w", "b"])
V["mlp_v3"] = one("raw", "embedding_dim: 8 value_dim: 3 mlp {}")
V["mlp_match"] = one("match", "embedding_dim: 8 mlp {}")
V["mlp_expr"] = one("expr", "embedding_dim: 8 mlp {}")
V["fp16"] = one("id", "embedding_dim: 8 num_buckets: 30 data_type: 'FP16'")
V["weighted"] = one("id", "embedding_dim: 8 num_buckets: 30 weighted: true fg_encoded_default_value: '4'")
V["weighted_mean"] = one("id", "embedding_dim: 8 num_buckets: 30 weighted: true pooling: 'mean'")
V["zch"] = one("id", "embedding_dim: 8 zch { zch_size: 25 eviction_interval: 2 lfu {} }")
V["value_dim1_id"] = one("id", "embedding_dim: 8 num_buckets: 30 value_dim: 1")
V["value_dim2_id"] = one("id", "embedding_dim: 8 num_buckets: 30 value_dim: 2")
V["sep"] = small(D8[:5], N8[:5], data='fg_encoded_multival_sep: "|"')
V["shared_name"] = small([feature("id", n, "embedding_dim: 8 num_buckets: 30 embedding_name: 'e'") for n in "xyz"], list("xyz"))
V["suffix"] = small(D8, N8, groups=group("g", N8[:3], rest='embedding_name_suffix: "s"') + group("h", N8[2:]),
                    model="multi_tower { towers { input: 'g' mlp " + units(6) + " } towers { input: 'h' mlp " + units(5) + " } final " + units(8) + " } " + BCE)
V["not_trainable_init"] = one("id", "embedding_dim: 8 num_buckets: 30 trainable: false init_fn: 'nn.init.uniform_,a=-0.1,b=0.1' use_mask: true")

SEQ = sequence("s", [feature("id", "x", "embedding_dim: 8 num_buckets: 30"), feature("id", "m", "embedding_dim: 4 num_buckets: 20 value_dim: 0 pooling: 'mean'"),
                     feature("raw", "r", ""), feature("raw", "v", "value_dim: 2")])
QX = [feature("id", "q1", "embedding_dim: 8 num_buckets: 30 embedding_name: 's__x_emb'"), feature("id", "q2", "embedding_dim: 4 num_buckets: 20 value_dim: 1"), feature("raw", "q3", "")]
FULL = ["q1", "q2", "q3", "s__x", "s__m", "s__r", "s__v"]
MT = "multi_tower { towers { input: 'g' mlp " + units(12, 8) + " } final " + units(8) + " } " + BCE


def nested(encoders, seqs, features=None, names=("a0",), suffix=""):
    return pipeline((features or D8[:1] + QX + [SEQ]), group("g", names, rest=f"{suffix} {seqs} {encoders}"), MT)


def sg(names, name="c", rest=""):
    return f'sequence_groups {{ {f"group_name: {chr(34)}{name}{chr(34)}" if name else ""} ' + " ".join(f"feature_names: '{n}'" for n in names) + f" {rest} }}"


EXACT = ["q1", "q2", "q3", "s__x", "s__m", "s__r"]
for most in ("", "max_seq_length: 4"):
    tag = "_cut" if most else ""
    V["din" + tag] = nested(f"sequence_encoders {{ din_encoder {{ input: 'c' {most} attn_mlp {units(9, 5)} }} }}", sg(FULL))
    V["simple" + tag] = nested(f"sequence_encoders {{ simple_attention {{ input: 'c' {most} }} }}", sg(EXACT))
    V["pool_mean" + tag] = nested(f"sequence_encoders {{ pooling_encoder {{ input: 'c' {most} }} }}", sg(FULL))
    V["pool_sum" + tag] = nested(f"sequence_encoders {{ pooling_encoder {{ input: 'c' pooling_type: 'sum' {most} }} }}", sg(FULL))
    V["self" + tag] = nested(f"sequence_encoders {{ self_attention_encoder {{ input: 'c' multihead_attn_dim: 12 num_heads: 3 {most} }} }}", sg(FULL))
    V["window" + tag] = nested(f"sequence_encoders {{ multi_window_din_encoder {{ input: 'c' windows_len: [2, 3, 4] attn_mlp {units(9, 5)} {most} }} }}", sg(FULL))
V["self_default"] = nested("sequence_encoders { self_attention_encoder { input: 'c' } }", sg(FULL))
V["unnamed_nested"] = nested("sequence_encoders { pooling_encoder { } } sequence_encoders { din_encoder { attn_mlp " + units(4) + " } }", sg(FULL, ""))
V["suffix_nested"] = nested("sequence_encoders { pooling_encoder { input: 'c' } } sequence_encoders { din_encoder { input: 'd' attn_mlp " + units(4) + " } }",
                            sg(FULL) + sg(FULL, "d", "embedding_name_suffix: 'own'"), suffix="embedding_name_suffix: 'par'")
V["all_encoders"] = nested("sequence_encoders { din_encoder { input: 'c' attn_mlp " + units(6, rest="activation: 'nn.Sigmoid'") + " } } sequence_encoders { simple_attention { input: 'd' } } "
    "sequence_encoders { pooling_encoder { input: 'd' } } sequence_encoders { self_attention_encoder { input: 'c' multihead_attn_dim: 8 num_heads: 2 } } "
    "sequence_encoders { multi_window_din_encoder { input: 'd' windows_len: [1,4,5] attn_mlp " + units(5) + " } }", sg(FULL) + sg(EXACT, "d"))
UNG = [feature("sequence_id", "hx", "embedding_dim: 8 num_buckets: 30 sequence_length: 10 sequence_delim: '|'"), feature("sequence_raw", "hr", "sequence_length: 10"),
       feature("sequence_id", "hm", "embedding_dim: 4 num_buckets: 30 value_dim: 0 sequence_length: 10")]
for n in ("hx", "hr", "hm"):
    V[f"ungrouped_{n}"] = nested("sequence_encoders { pooling_encoder { input: 'c' } }", sg([n]), D8[:1] + UNG)
V["ungrouped_mix"] = nested("sequence_encoders { pooling_encoder { input: 'c' } } sequence_encoders { din_encoder { attn_mlp " + units(4) + " input: 'c' } }", sg(["hx", "hr", "hm"]), D8[:1] + UNG)
V["seq_default"] = nested("sequence_encoders { pooling_encoder { input: 'c' } }", sg(["s__x"]), D8[:1] + [sequence("s", [feature("id", "x", "embedding_dim: 8 num_buckets: 30 fg_encoded_default_value: '7'")])])
V["seq_default_two"] = nested("sequence_encoders { pooling_encoder { input: 'c' } }", sg(["s__x"]), D8[:1] + [sequence("s", [feature("id", "x", "embedding_dim: 8 num_buckets: 30 value_dim: 0 fg_encoded_default_value: '7\\0039'")])])
V["seq_lookup"] = nested("sequence_encoders { pooling_encoder { input: 'c' } }", sg(["s__x", "s__l", "s__b"]), D8[:1] + [sequence("s", [feature("id", "x", "embedding_dim: 8 num_buckets: 30"), feature("lookup", "l", "embedding_dim: 4 num_buckets: 9"), feature("raw", "b", "embedding_dim: 4 boundaries: [1.0, 2.0]")])])
V["seq_fp16"] = nested("sequence_encoders { pooling_encoder { input: 'c' } }", sg(["s__x"]), D8[:1] + [sequence("s", [feature("id", "x", "embedding_dim: 8 num_buckets: 30 data_type: 'FP16'")])])
V["seq_only_group"] = nested("sequence_encoders { pooling_encoder { input: 'c' } }", sg(["s__x"]), D8[:1] + [SEQ], names=())
V["vd"] = pipeline(D8 + QX + [SEQ], group("g", N8, rest=sg(FULL) + "sequence_encoders { pooling_encoder { input: 'c' } }"), MT, extra="variational_dropout { regularization_lambda: 0.05 }")
V["vd_default"] = pipeline(D8, group("g", N8), MT, extra="variational_dropout { }")

for i, act in enumerate(["Dice", "nn.PReLU", "nn.GELU", "nn.LeakyReLU", "nn.LeakyReLU(negative_slope=0.3)", "", "nn.SiLU", "nn.Tanh", "nn.Sigmoid", "nn.ELU(alpha=0.5)", "nn.ReLU6", "nn.Hardtanh", "nn.Softplus", "nn.Hardswish", "nn.SELU", "nn.Identity", "nn.PReLU(init=0.1)", "nn.Mish"]):
    for j, rest in enumerate(["", "use_bn: true", "use_ln: true", "bias: false dropout_ratio: 0.1"]):
        if j == i % 4 or i < 3:
            m = "multi_tower_din { towers { input: 'g' mlp " + units(12, 8, rest=f"activation: '{act}' {rest}") + " } din_towers { input: 'h' attn_mlp " + units(6, 5, rest=f"activation: '{act}' {rest}") + " } final " + units(8, 7, rest="use_bn: true dropout_ratio: [0.1, 0.2]") + " } " + BCE
            V[f"act{i}_{j}"] = pipeline(D8 + QX + [SEQ], group("g", N8) + group("h", FULL, "SEQUENCE"), m)
