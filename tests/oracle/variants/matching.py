"""Variants of two-tower matching models."""

from base import *
from features import QX, SEQ, sg

V = {}
LOSS = "losses { softmax_cross_entropy {} } metrics { recall_at_k { top_k: 3 } }"
UI = group("user", N8[:3]) + group("item", N8[2:])
TW = f"user_tower {{ input: 'user' mlp {units(7, 6)} }} item_tower {{ input: 'item' mlp {units(8, 6)} }}"


def match(name, model, groups=UI, features=D8, **kw):
    V[name] = pipeline(features, groups, model + LOSS, **kw)


for kind in ("dssm", "dssm_v2"):
    for i, rest in enumerate(["in_batch_negative: true", "similarity: COSINE temperature: 0.1 in_batch_negative: true", "output_dim: 5 in_batch_negative: true",
                              "output_dim: 5 similarity: COSINE in_batch_negative: true temperature: 2.0", "similarity: INNER_PRODUCT in_batch_negative: true"]):
        match(f"{kind}_{i}", f"{kind} {{ {TW} {rest} }}")
    match(f"{kind}_order", f"{kind} {{ {TW} output_dim: 4 in_batch_negative: true }}", group("item", N8[2:]) + group("user", N8[:3]))
    match(f"{kind}_seq", f"{kind} {{ {TW} output_dim: 4 in_batch_negative: true }}",
          group("user", N8[:3], rest=sg(["s__x", "s__r"]) + "sequence_encoders { pooling_encoder { input: 'c' } }") + group("item", N8[2:] + ["q1"]), D8 + QX + [SEQ])
AUG = [feature("id", "ua", "embedding_dim: 4 num_buckets: 10"), feature("id", "ia", "embedding_dim: 4 num_buckets: 10")]
for i, (rest, out) in enumerate([("similarity: COSINE temperature: 0.2 output_dim: 4", 0), ("output_dim: 4", 0), ("", 4)]):
    mlp_ = units(7, 4)
    match(f"dat_{i}", f"dat {{ user_tower {{ input: 'user' augment_input: 'au' mlp {mlp_} }} item_tower {{ input: 'item' augment_input: 'ai' mlp {mlp_} }} {rest} in_batch_negative: true amm_i_weight: 0.3 amm_u_weight: 0.7 }}",
          UI + group("au", ["ua"]) + group("ai", ["ia"]), D8 + AUG)
HIST = group("hist", ["s__x", "s__m", "s__r"], "SEQUENCE")


def mind(name, caps="max_k: 3 max_seq_len: 9 high_dim: 6 routing_init_method: 'zeros'", hist=f"hist_seq_mlp {units(9, 7)}", rest="output_dim: 4", umlp=units(8, 5), concat=units(9, 6), item=units(8, 6)):
    match(name, f"mind {{ user_tower {{ input: 'user' history_input: 'hist' user_mlp {umlp} {hist} capsule_config {{ {caps} }} concat_mlp {concat} }} item_tower {{ input: 'item' mlp {item} }} in_batch_negative: true {rest} }}",
          UI + HIST, D8 + QX + [SEQ])


Z = "max_seq_len: 9 high_dim: 6 routing_init_method: 'zeros' "
mind("mind_base")
mind("mind_const", Z + "max_k: 3 const_caps_num: true")
mind("mind_k1", Z + "max_k: 1")
mind("mind_defk", Z)
mind("mind_iters1", Z + "num_iters: 1")
mind("mind_iters5", Z + "num_iters: 5 routing_logits_scale: 3.0 squash_pow: 0.5")
mind("mind_short", "max_seq_len: 4 high_dim: 6 routing_init_method: 'zeros' max_k: 4")
mind("mind_long", "max_seq_len: 15 high_dim: 6 routing_init_method: 'zeros' max_k: 4")
mind("mind_nohist", hist="")
mind("mind_onehist", hist=f"hist_seq_mlp {units(7)}")
mind("mind_hist3", hist=f"hist_seq_mlp {units(9, 8, 7)}")
mind("mind_user3", umlp=units(9, 8, 5))
mind("mind_inner", rest="similarity: INNER_PRODUCT output_dim: 4 temperature: 0.5")
mind("mind_noout", rest="simi_pow: 3", concat=units(9, 6), item=units(8, 6))
mind("mind_bn", umlp=units(8, 5, rest="use_bn: true"), hist="hist_seq_mlp " + units(9, 7, rest="use_bn: true"), concat=units(9, 6, rest="use_bn: true activation: 'nn.PReLU'"), item=units(8, 6, rest="use_bn: true"))
mind("mind_ln", umlp=units(8, 5, rest="use_ln: true"), hist="hist_seq_mlp " + units(9, 7, rest="use_ln: true activation: 'Dice'"), concat=units(9, 6, rest="use_ln: true activation: ''"), item=units(8, 6, rest="bias: false"))
mind("mind_normal", "max_k: 3 max_seq_len: 9 high_dim: 6")
