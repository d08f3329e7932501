"""Variants of losses, weights and metrics."""

from base import *
from ranking import task

V, OPTIONS = {}, {}
MODEL = "multi_tower { towers { input: 'all' mlp " + units(6) + " } final " + units(7) + " } "
UID = D8 + [feature("id", "u", "embedding_dim: 8 num_buckets: 5"), feature("id", "ul", "embedding_dim: 8 num_buckets: 4")]
TYPES = {"types": {"u": "int", "ul": "list"}}


def one(name, tail, labels=("clk",), data="", batch=8):
    V[name] = pipeline(UID, group("all", N8), MODEL + tail, labels=labels, data=data, batch=batch)
    OPTIONS[name] = TYPES


SW = 'sample_weight_fields: "the_weight"'
AUCS = "metrics { auc {} } metrics { auc { thresholds: 11 } } "
ALL1 = ("metrics { auc { thresholds: 50 } } metrics { accuracy {} } metrics { normalized_entropy {} } metrics { grouped_auc { grouping_key: 'u' } }")
K3M = "metrics { multiclass_auc {} } metrics { accuracy { top_k: 2 } }"
K3W = "metrics { multiclass_auc { average: 'weighted' thresholds: 30 } } metrics { accuracy { } }"
BATCHES = (5, 8, 24)
for data, w in (("", ""), (SW, "_w")):
    for b in BATCHES:
        one(f"bce{w}_{b}", "losses { binary_cross_entropy {} } " + ALL1, data=data, batch=b)
    one(f"bce_smooth{w}", "losses { binary_cross_entropy { label_smoothing: 0.2 } } metrics { auc {} } metrics { accuracy { threshold: 0.3 } } metrics { normalized_entropy { eta: 0.1 } }", data=data)
    one(f"focal{w}", "losses { binary_focal_loss {} } metrics { auc {} } metrics { grouped_auc { grouping_key: 'ul' } }", data=data)
    one(f"focal_opts{w}", "losses { binary_focal_loss { gamma: 1.3 alpha: 0.2 } } metrics { accuracy { threshold: 0.6 } }", data=data)
    one(f"softmax3{w}", "num_class: 3 losses { softmax_cross_entropy {} } " + K3M, ("cls3",), data=data)
    one(f"softmax3_smooth{w}", "num_class: 3 losses { softmax_cross_entropy { label_smoothing: 0.15 } } " + K3W, ("cls3",), data=data)
    one(f"softmax2{w}", "num_class: 2 losses { softmax_cross_entropy {} } metrics { auc {} } metrics { accuracy {} } metrics { grouped_auc { grouping_key: 'u' } } metrics { normalized_entropy {} }", data=data)
    one(f"l2{w}", "losses { l2_loss {} } metrics { mean_absolute_error {} } metrics { mean_squared_error {} } metrics { xauc { in_batch: true } }", ("y",), data=data)
    one(f"bce_and_l2{w}", "losses { binary_cross_entropy {} } losses { l2_loss {} } metrics { auc {} } metrics { mean_squared_error {} }", data=data)
    for s in ("u", "ul"):
        one(f"jrc_{s}{w}", f"num_class: 2 losses {{ jrc_loss {{ session_name: '{s}' alpha: 0.3 }} }} metrics {{ auc {{}} }}", data=data)
        one(f"jrc_ce_{s}{w}", f"num_class: 2 losses {{ jrc_loss {{ session_name: '{s}' }} }} losses {{ softmax_cross_entropy {{}} }} metrics {{ grouped_auc {{ grouping_key: '{s}' }} }}", data=data, batch=24)


def many(name, model, labels=("clk", "buy", "cls3", "y", "ind"), data="", extra="", more=""):
    V[name] = pipeline(UID, group("all", N8) + more, model, labels=labels, data=data + ' sample_weight_fields: ["w1_weight", "w2_weight"]', extra=extra)
    OPTIONS[name] = TYPES


M1 = "metrics { auc {} } metrics { grouped_auc { grouping_key: 'u' } }"
for i, rest in enumerate(["weight: 0.3", "sample_weight_name: 'w1_weight'", "sample_weight_name: 'w2_weight' weight: 2.5", "task_space_indicator_label: 'ind' in_task_space_weight: 1.0 out_task_space_weight: 0.0",
                          "task_space_indicator_label: 'ind' in_task_space_weight: 0.7 out_task_space_weight: 0.2 weight: 3", "task_space_indicator_label: 'ind' out_task_space_weight: 0.1 sample_weight_name: 'w2_weight' weight: 0.5",
                          "task_space_indicator_label: 'ind'"]):
    towers = task("ctr", "clk", M1) + task("cvr", "buy", M1 + rest + ' ') + task("k", "cls3", "num_class: 3 " + rest + " " + K3M, "softmax_cross_entropy { label_smoothing: 0.1 }") + task("v", "y", "metrics { mean_absolute_error {} } " + rest, "l2_loss {}")
    towers += task("j", "buy", "num_class: 2 metrics { auc {} } " + rest, "jrc_loss { session_name: 'u' }") + task("f", "buy", rest, "binary_focal_loss {}")
    many(f"tasks_{i}", f"simple_multi_task {{ {towers} }}")
    many(f"dbmtl_{i}", f"dbmtl {{ bottom_mlp {units(9)} {towers} }}", extra="variational_dropout { regularization_lambda: 0.1 }")
PT = task("ctr", "clk", M1) + task("cvr", "buy", M1 + "weight: 0.4") + task("k", "cls3", "num_class: 3 " + K3M, "softmax_cross_entropy {}")
many("pepnet_domain", f"pepnet {{ domain_input_name: 'dom2' task_domain_num: 2 ppnet_hidden_units: 7 {PT} }}", labels=("clk", "buy", "cls3", "dom2"), more=group("uia", N8[:2]))
many("pepnet_one", f"pepnet {{ ppnet_hidden_units: 7 {PT} }}", labels=("clk", "buy", "cls3", "dom2"), more=group("uia", N8[:2]))
R = "rocket_launching { booster_mlp " + units(8, 6) + " light_mlp " + units(6) + " } "
V["rocket"] = pipeline(UID, group("all", N8), R + "losses { binary_cross_entropy {} } " + "metrics { auc {} }", data=SW)
V["rocket3"] = pipeline(UID, group("all", N8), R + "num_class: 3 losses { softmax_cross_entropy {} } " + K3M, labels=("cls3",))
UI = group("user", N8[:3]) + group("item", N8[2:])
TW = f"user_tower {{ input: 'user' mlp {units(7, 6)} }} item_tower {{ input: 'item' mlp {units(8, 6)} }} in_batch_negative: true similarity: COSINE temperature: 0.3 "
for kind in ("dssm", "dssm_v2"):
    V[f"{kind}_w"] = pipeline(UID, UI, f"{kind} {{ {TW} }} losses {{ softmax_cross_entropy {{ label_smoothing: 0.1 }} }} metrics {{ recall_at_k {{ top_k: 1 }} }} metrics {{ recall_at_k {{ top_k: 4 }} }} metrics {{ recall_at_k {{}} }}", data=SW, batch=10)
