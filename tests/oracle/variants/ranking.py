"""Variants of ranking models with one output and with several tasks."""

from base import *
from features import QX, SEQ, FULL, EXACT, sg

DICE = units(6, 4, rest="activation: 'Dice'")
RAW = [feature("raw", f"r{i}", "fg_encoded_default_value: '0'") for i in range(3)]
NR = ["r0", "r1", "r2"]
LN, BN = units(9, rest="use_ln: true"), units(8, 6, rest="use_bn: true")
V = {}


def rank(name, model, groups=None, features=None, **kw):
    V[name] = pipeline(features or D8, groups or group("all", N8), model + " " + kw.pop("tail", BCE), **kw)


WIDE = group("wide", N8[:4], "WIDE") + group("deep", N8)
K3 = "num_class: 3 losses { softmax_cross_entropy {} }"
rank("wd_final", f"wide_and_deep {{ deep {units(12, 6)} final {units(5)} }}", WIDE)
rank("wd_wide7", f"wide_and_deep {{ deep {units(12, 6)} wide_embedding_dim: 8 wide_init_fn: 'nn.init.zeros_' }}", WIDE)
rank("wd_k3", f"wide_and_deep {{ deep {units(12, 6)} }}", WIDE, tail=K3, labels=("cls3",))
rank("wd_raw_deep", f"wide_and_deep {{ deep {units(12, 6)} }}", group("wide", N8[:4], "WIDE") + group("deep", N8 + NR), D8 + RAW)
rank("wd_order", f"wide_and_deep {{ deep {units(12, 6)} }}", group("deep", N8) + group("wide", N8[:4], "WIDE"))
rank("wd_wide_suffix", f"wide_and_deep {{ deep {units(12, 6)} }}", group("wide", N8[:4], "WIDE", "embedding_name_suffix: 'q'") + group("deep", N8))
for tag, fm in (("nofm", ""), ("fm", group("fm", N8[:3]))):
    rank(f"deepfm_{tag}", f"deepfm {{ deep {units(12, 6)} }}", WIDE + fm)
    rank(f"deepfm_{tag}_final", f"deepfm {{ deep {units(12, 6)} final {units(5, 4)} wide_embedding_dim: 12 }}", WIDE + fm)
    rank(f"deepfm_{tag}_k3", f"deepfm {{ deep {units(12, 6)} }}", WIDE + fm, tail=K3, labels=("cls3",))
rank("mt_two", f"multi_tower {{ towers {{ input: 'h' mlp {units(5)} }} towers {{ input: 'g' mlp {units(6, 4)} }} final {units(7)} }}", group("g", N8[:3]) + group("h", N8[2:]))
rank("mtd_two", f"multi_tower_din {{ towers {{ input: 'g' mlp {units(6, 4)} }} din_towers {{ input: 's2' attn_mlp {units(5)} }} din_towers {{ input: 's1' attn_mlp {units(5, 4)} }} final {units(7)} }}",
     group("g", N8[:3]) + group("s1", FULL, "SEQUENCE") + group("s2", EXACT, "SEQUENCE"), D8 + QX + [SEQ])
rank("mtd_noquery_wide", f"multi_tower_din {{ towers {{ input: 'g' mlp {units(6)} }} din_towers {{ input: 's1' attn_mlp {units(5)} }} final {units(7)} }}",
     group("g", N8[:3]) + group("s1", ["q1", "s__x", "s__r"], "SEQUENCE"), D8 + QX + [SEQ])
rank("mtd_k2", f"multi_tower_din {{ towers {{ input: 'g' mlp {units(6)} }} din_towers {{ input: 's1' attn_mlp {units(5)} }} final {units(7)} }}",
     group("g", N8[:3]) + group("s1", ["q1", "s__x"], "SEQUENCE", "embedding_name_suffix: 'z'"), D8 + QX + [SEQ], tail="num_class: 2 losses { softmax_cross_entropy {} }")
rank("dcn1_1", f"dcn_v1 {{ cross {{ cross_num: 1 }} deep {units(6)} final {units(5)} }}")
rank("dcn1_def", f"dcn_v1 {{ cross {{ }} deep {units(6, 5)} final {units(5)} }}", tail=K3, labels=("cls3",))
for b in ("", f"backbone {units(10)}"):
    for d in ("", f"deep {units(9, 6)}"):
        rank(f"dcn2_{bool(b):d}{bool(d):d}", f"dcn_v2 {{ {b} cross {{ cross_num: 2 low_rank: 3 }} {d} final {units(5)} }}")
rank("dcn2_def", f"dcn_v2 {{ cross {{ }} final {units(5)} }}", tail=K3, labels=("cls3",))
SD = group("dense", NR) + group("sparse", N8)
for arch in ("", "arch_with_sparse: false"):
    rank(f"dlrm_{bool(arch):d}", f"dlrm {{ dense_mlp {units(10, 8)} {arch} final {units(7)} }}", SD, D8 + RAW)
    rank(f"dlrm_nodense_{bool(arch):d}", f"dlrm {{ {arch} final {units(7)} }}", group("sparse", N8))
    rank(f"dlrm_one_{bool(arch):d}", f"dlrm {{ {arch} final {units(7)} }}")
rank("dlrm_order", f"dlrm {{ dense_mlp {units(10, 8)} final {units(7)} }}", group("sparse", N8) + group("dense", NR), D8 + RAW, tail=K3, labels=("cls3",))
for ratio in ("", "reduction_ratio: 0.5", "reduction_ratio: 0 aggregation_dim: 9", "reduction_ratio: 2.0 aggregation_dim: 5", "aggregation_dim: 5"):
    for par in ("", "use_parallel: false"):
        rank(f"mask_{len(ratio)}_{bool(par):d}", f"mask_net {{ mask_net_module {{ n_mask_blocks: 2 mask_block {{ hidden_dim: 6 {ratio} }} top_mlp {units(7, 5)} {par} }} }}")
rank("mask_notop", "mask_net { mask_net_module { n_mask_blocks: 2 mask_block { hidden_dim: 6 } } }")
rank("mask_serial1", f"mask_net {{ mask_net_module {{ n_mask_blocks: 1 mask_block {{ hidden_dim: 6 }} use_parallel: false top_mlp {units(7)} }} }}", tail=K3, labels=("cls3",))


def layer(l, f, k, m):
    return f"wukong_layers {{ lcb_feature_num: {l} fmb_feature_num: {f} {f'compressed_feature_num: {k}' if k else ''} feature_num_mlp {m} }}"


rank("wukong_same", f"wukong {{ dense_mlp {units(10, 8)} {layer(3, 4, 5, units(9))} {layer(2, 5, 0, units(9, 4))} final {units(7)} }}", SD, D8 + RAW)
rank("wukong_diff", f"wukong {{ dense_mlp {units(8)} {layer(3, 6, 2, units(9))} {layer(2, 2, 3, units(9, 4))} {layer(1, 1, 3, units(5))} final {units(7)} }}", SD, D8 + RAW)
rank("wukong_nodense", f"wukong {{ {layer(3, 3, 2, units(9))} final {units(7)} }}", group("sparse", N8))
rank("wukong_one", f"wukong {{ {layer(3, 3, 2, units(9))} final {units(7)} }}")
rank("wukong_k3", f"wukong {{ dense_mlp {units(8)} {layer(3, 6, 2, LN)} final {units(7)} }}", SD, D8 + RAW, tail=K3, labels=("cls3",))
XW = group("wide", N8[:5], "WIDE") + group("deep", N8)
rank("xdeepfm_odd", f"xdeepfm {{ cin {{ cin_layer_size: [7, 5, 3] }} deep {units(6)} final {units(5)} wide_embedding_dim: 4 }}", XW)
rank("xdeepfm_one", f"xdeepfm {{ cin {{ cin_layer_size: 1 }} deep {units(6)} final {units(5)} }}", XW, tail=K3, labels=("cls3",))
rank("tdm_order", f"tdm {{ multiwindow_din {{ windows_len: [5, 4] attn_mlp {units(6)} }} final {units(7)} }}", group("g", N8[:3]) + group("s", FULL, "SEQUENCE") + group("h", N8[3:]), D8 + QX + [SEQ])
rank("tdm_k1_dice", f"tdm {{ multiwindow_din {{ windows_len: [1, 2, 3, 4, 5] attn_mlp {DICE} }} final {units(7)} }}",
     group("s", EXACT, "SEQUENCE") + group("h", N8), D8 + QX + [SEQ], tail="num_class: 2 losses { softmax_cross_entropy {} }")
rank("l2_rank", f"multi_tower {{ towers {{ input: 'all' mlp {units(6)} }} final {units(7)} }}", tail="losses { l2_loss {} }", labels=("y",))
rank("bce_l2", f"multi_tower {{ towers {{ input: 'all' mlp {units(6)} }} final {units(7)} }}", tail="losses { binary_cross_entropy {} } losses { l2_loss {} }")
rank("focal_rank", f"multi_tower {{ towers {{ input: 'all' mlp {units(6)} }} final {units(7)} }}", tail="losses { binary_focal_loss {} }")
rank("vd_fm", f"deepfm {{ deep {units(12, 6)} }}", WIDE + group("fm", N8[:3]), tail=BCE + " variational_dropout {}")
rank("vd_din", f"multi_tower_din {{ towers {{ input: 'g' mlp {units(6)} }} din_towers {{ input: 's1' attn_mlp {units(5)} }} final {units(7)} }}",
     group("g", N8[:3]) + group("s1", ["q1", "s__x"], "SEQUENCE"), D8 + QX + [SEQ], tail=BCE + " variational_dropout {}")
rank("vd_dlrm", f"dlrm {{ dense_mlp {units(10, 8)} final {units(7)} }}", SD, D8 + RAW, tail=BCE + " variational_dropout {}")


def task(name, label, rest, loss="binary_cross_entropy {}", mlp=units(6, 4)):
    return f"task_towers {{ tower_name: '{name}' label_name: '{label}' {f'mlp {mlp}' if mlp else ''} losses {{ {loss} }} {rest} }} "


def multi(name, model, groups=None, features=None, labels=("clk", "buy", "cls3", "y"), **kw):
    V[name] = pipeline(features or D8, groups or group("all", N8), model, labels=labels, **kw)


T2 = task("ctr", "clk", "") + task("cvr", "buy", "", mlp="")
T4 = T2 + task("k", "cls3", "num_class: 3", "softmax_cross_entropy {}") + task("v", "y", "", "l2_loss {}")
multi("smt", f"simple_multi_task {{ {T2} }}")
multi("smt4", f"simple_multi_task {{ {T4} }}")
multi("mmoe_gate", f"mmoe {{ expert_mlp {units(8, 6)} gate_mlp {units(5)} num_expert: 2 {T4} }}")
multi("mmoe_def", f"mmoe {{ expert_mlp {BN} {T2} }}")
multi("mmoe_one", f"mmoe {{ expert_mlp {units(8)} num_expert: 1 {T2} }}")


def net(n, e, s):
    return f"extraction_networks {{ network_name: '{n}' expert_num_per_task: {e} share_num: {s} task_expert_net {units(7, 6)} share_expert_net {units(6)} }}"


multi("ple_one", f"ple {{ {net('a', 2, 3)} {T2} }}")
multi("ple_three", f"ple {{ {net('a', 1, 2)} {net('b', 3, 1)} {net('c', 2, 2)} {T4} }}")
REL = task("ctr", "clk", "") + task("cvr", "buy", f"relation_tower_names: 'ctr' relation_mlp {units(5)}", mlp="") + task("k", "cls3", f"num_class: 3 relation_tower_names: ['cvr', 'ctr'] relation_mlp {units(5, 4)}", "softmax_cross_entropy {}")
MASK = f"mask_net {{ n_mask_blocks: 2 mask_block {{ hidden_dim: 6 }} top_mlp {units(9)} }}"
SERIAL = "mask_net { n_mask_blocks: 2 mask_block { hidden_dim: 6 reduction_ratio: 0.4 } use_parallel: false }"
for i, pre in enumerate(["", MASK, SERIAL, f"bottom_mlp {units(9)}", f"expert_mlp {units(8)}", f"expert_mlp {units(8)} gate_mlp {units(5, 3)} num_expert: 4", f"{MASK} bottom_mlp {units(9)} expert_mlp {units(8)} gate_mlp {units(5)}", f"{MASK} expert_mlp {units(8)}"]):
    multi(f"dbmtl_{i}", f"dbmtl {{ {pre} {REL} }}")
multi("dbmtl_norel", f"dbmtl {{ bottom_mlp {units(9)} {T4} }}")
multi("dbmtl_relmlp_only", f"dbmtl {{ bottom_mlp {units(9)} {task('ctr', 'clk', '')} {task('cvr', 'buy', f'relation_mlp {units(5)}')} }}")
IV = task("ctr", "clk", "") + task("cvr", "buy", "intervention_tower_names: 'ctr' low_rank_dim: 2", mlp=units(6)) + task("k", "cls3", "num_class: 3 intervention_tower_names: ['ctr', 'cvr'] low_rank_dim: 3", "softmax_cross_entropy {}", mlp=units(5))
multi("dc2vr_a", f"dc2vr {{ bottom_mlp {units(9)} {IV} }}")
multi("dc2vr_b", f"dc2vr {{ expert_mlp {units(8)} gate_mlp {units(5)} num_expert: 2 {IV} }}")
multi("dc2vr_c", f"dc2vr {{ {T2} }}")
UIA = group("uia", N8[:2])
DOM = group("domain", N8[3:4])
for i, (groups, rest) in enumerate([(UIA, ""), (UIA + DOM, ""), (UIA + DOM, "epnet_hidden_unit: 5 epnet_gamma: 1.5 ppnet_gamma: 3.0 ppnet_activation: 'nn.SiLU' ppnet_dropout_ratio: [0.1, 0.2]"),
                                    (UIA, "ppnet_activation: 'nn.Tanh' ppnet_dropout_ratio: 0.3"), (UIA + DOM, "domain_input_name: 'dom2' task_domain_num: 2"), (UIA, "domain_input_name: 'dom3' task_domain_num: 3")]):
    multi(f"pepnet_{i}", f"pepnet {{ {rest} ppnet_hidden_units: [7, 6] {T4 if i != 5 else T2} }}", group("all", N8) + groups, labels=("clk", "buy", "cls3", "y", "dom2", "dom3"))
multi("pepnet_order", f"pepnet {{ ppnet_hidden_units: [7] {T2} }}", UIA + group("all", N8))
rank("rocket_share", f"rocket_launching {{ share_mlp {units(9)} booster_mlp {units(8, 6)} light_mlp {units(6)} }}")
rank("rocket_noshare", f"rocket_launching {{ booster_mlp {units(8, 6)} light_mlp {units(8, 6)} feature_based_distillation: true feature_distillation_function: EUCLID }}")
rank("rocket_k3", f"rocket_launching {{ booster_mlp {units(8, 6)} light_mlp {BN} }}", tail=K3, labels=("cls3",))
