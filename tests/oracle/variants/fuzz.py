"""Random combinations of the options of the HSTU family and of groups; FUZZ chooses the seed."""

import os
import random

from base import *
import features as F
import hstu as H

V, OPTIONS = {}, {}
R = random.Random(int(os.environ.get("FUZZ", "0")))


def pick(*options):
    return R.choice(options)


def stu(prefix):
    out = pick("", "use_group_norm: true ") + pick("", "", "attn_alpha: 0.4 ", "scaling_seqlen: 17 ")
    out += pick("", "", f"contextual_seq_len: {R.randint(0, prefix)} ")
    return out + pick("", f"max_attn_len: {R.randint(1, 6)}", f"sla_k1: {R.randint(0, 4)} sla_k2: {R.randint(1, 6)}", f"sla_k1: {R.randint(1, 5)}")


def transducer(name, concat, ctx):
    hist = CE[R.randrange(3)]
    par = "content_mlp " + H.PAR
    simple = not ctx or R.random() < 0.6
    amlp = H.AMLP if simple or R.random() < 0.5 else "action_mlp " + H.PAR
    interleave = R.random() < 0.4
    body = f"{H.ENC % pick('', H.WATCH)} {amlp} content_encoder {{ {hist} }} {H.CMLP if simple else par}"
    pre = f"contextual_interleave_preprocessor {{ {body} {pick('', '', 'enable_interleaving: false')} }}" if interleave else f"contextual_preprocessor {{ {body} }}"
    layers = R.randint(1, 4)
    split = R.randint(1, max(layers - 1, 1))
    more = pick("", f"attn_truncation_split_layer: {split} attn_truncation_tail_len: {R.randint(1, 8)}") if layers > 1 else ""
    pos = pick(H.POS, f"num_position_buckets: {R.randint(3, 30)}", H.POS + " time_bucket_fn: 'log'", f"num_position_buckets: {R.randint(4, 20)} num_time_buckets: {R.randint(2, 40)} use_time_encoding: true")
    post = pick("l2norm_postprocessor {}", "layernorm_postprocessor {}", H.T)
    return H.hstu(stu=stu(1 if concat and ctx else len(ctx)), pre=pre, pos=pos, post=post, layers=layers, more=more, name=f"name: '{name}'" if name else "")


CE = ["slice_content_encoder {}", "pad_content_encoder {}", f"mlp_content_encoder {{ uih_mlp {units(9, 7)} target_mlp {units(8, 7)} }}"]
for i in range(int(os.environ.get("COUNT", "40"))):
    channels = pick(0, 0, 0, 2, 3, 1)
    ctx = pick((), (8, 8), (8, 8, 8), (8, 4), (8,))
    names = [(c, s) for c, s in H.CH[:channels]] or [("uih", "uih")]
    rest = pick("", "", "sequence_timestamp_is_ascending: false ")
    if ctx == (8, 4) or R.random() < 0.2:
        rest += "concat_contextual_features: true"
    hist = pick((), ("b", "hr"))
    hf = H.HB if hist else ()
    cand = pick((), ("cr", "cb"))
    cf = [H.raw("cr"), H.vid(4, "cb")] if cand else ()
    hs = [transducer(c if channels else "", "concat" in rest, ctx) for c, _ in names]
    if not cand:
        hs = [h.replace("pad_content_encoder", "slice_content_encoder") for h in hs]
    tasks = H.TASKS if ctx else H.NOJRC
    kind = pick("DEEP", "DEEP", "SEQUENCE") if ctx else "DEEP"
    H.add(f"h{i}", hs, "ultra_hstu" if channels else "dlrm_hstu", f=H.features(uih=[s for _, s in names], hist=hf, cand=cf, ctx=ctx),
          g=H.groups(uih=names, hist=hist, cand=cand, ctx=len(ctx), kind=kind), rest=rest, tasks=tasks)
    V[f"h{i}"] = H.V.pop(f"h{i}")
