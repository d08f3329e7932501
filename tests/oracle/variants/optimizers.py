"""Variants of optimizers and schedules."""

from base import *

V, OPTIONS = {}, {}
MODEL = "multi_tower { towers { input: 'g' mlp " + units(12, 8) + " } final " + units(8) + " } " + BCE


def opt(name, sparse=None, dense=None, features=D8, names=N8):
    V[name] = pipeline(features, group("g", names), MODEL, sparse=sparse, dense=dense)


C = " constant_learning_rate {}"
for n, s in (("adagrad", "adagrad_optimizer { lr: 0.05 }"), ("adagrad_acc", "adagrad_optimizer { lr: 0.05 initial_accumulator_value: 0.1 }"), ("rowwise", "rowwise_adagrad_optimizer { lr: 0.05 }"),
             ("rowwise_def", "rowwise_adagrad_optimizer { }"), ("rowwise_wd", "rowwise_adagrad_optimizer { lr: 0.05 weight_decay: 0.1 weight_decay_mode: L2 }"), ("adam", "adam_optimizer { lr: 0.05 }"),
             ("adam_opts", "adam_optimizer { lr: 0.05 beta1: 0.7 beta2: 0.9 weight_decay: 0.1 }"), ("adagrad_def", "adagrad_optimizer { }")):
    opt(f"s_{n}", s + C)
for n, d in (("adam", "adam_optimizer { lr: 0.02 }"), ("adam_def", "adam_optimizer { }"), ("adam_opts", "adam_optimizer { lr: 0.02 beta1: 0.7 beta2: 0.9 weight_decay: 0.1 }"), ("adamw", "adamw_optimizer { lr: 0.02 }"),
             ("adamw_wd", "adamw_optimizer { lr: 0.02 weight_decay: 0.3 beta1: 0.5 }"), ("adagrad", "adagrad_optimizer { lr: 0.05 }"), ("adagrad_acc", "adagrad_optimizer { lr: 0.05 initial_accumulator_value: 0.2 weight_decay: 0.1 }"),
             ("sgd", "sgd_optimizer { lr: 0.1 }"), ("sgd_m", "sgd_optimizer { lr: 0.1 momentum: 0.5 weight_decay: 0.05 }"), ("sgd_m0", "sgd_optimizer { lr: 0.1 momentum: 0 }")):
    opt(f"d_{n}", dense=d + C)
EXP, COS = "exponential_decay_learning_rate", "cosine_annealing_learning_rate"
for n, t in (("exp", EXP + " { decay_size: 2 decay_factor: 0.5 }"), ("exp_smooth", EXP + " { decay_size: 3 decay_factor: 0.5 staircase: false }"), ("exp_warm", EXP + " { decay_size: 2 decay_factor: 0.5 warmup_size: 3 warmup_learning_rate: 0.001 }"),
             ("exp_min", EXP + " { decay_size: 1 decay_factor: 0.3 min_learning_rate: 0.01 warmup_size: 1 staircase: false }"), ("cos", COS + " { T_max: 4 }"), ("cos_min", COS + " { T_max: 3 min_learning_rate: 0.01 warmup_size: 2 warmup_learning_rate: 0.002 }"),
             ("manual", "manual_step_learning_rate { schedule_sizes: [1, 3] learning_rates: [0.01, 0.2] }"), ("manual_warm", "manual_step_learning_rate { schedule_sizes: [2, 4] learning_rates: [0.03, 0.01] warmup: true }"),
             ("restart", "cosine_annealing_warm_restarts_learning_rate { T_0: 2 T_mult: 2 }"), ("restart_min", "cosine_annealing_warm_restarts_learning_rate { T_0: 2 min_learning_rate: 0.01 warmup_size: 1 }")):
    opt(f"sched_{n}", "rowwise_adagrad_optimizer { lr: 0.05 } " + t, "adam_optimizer { lr: 0.02 } " + t)
    opt(f"sched_sgd_{n}", "adagrad_optimizer { lr: 0.05 } " + t, "sgd_optimizer { lr: 0.02 } " + t)
    opt(f"sched_adam_{n}", "adam_optimizer { lr: 0.05 } " + t, "adamw_optimizer { lr: 0.02 } " + t)
for s in ("adagrad", "rowwise_adagrad", "adam"):
    shared = [feature("id", n, f"embedding_dim: 8 num_buckets: 9 embedding_name: 'e' pooling: '{p}'") for n, p in (("x", "sum"), ("z", "sum"))]
    opt(f"shared_{s}", f"{s}_optimizer {{ lr: 0.05 }} constant_learning_rate {{}}", features=shared, names=["x", "z"])
    opt(f"frozen_{s}", f"{s}_optimizer {{ lr: 0.05 }} constant_learning_rate {{}}", features=D8[:2] + [feature("id", "q", "embedding_dim: 8 num_buckets: 9 trainable: false")], names=["a0", "a1", "q"])
    opt(f"weighted_{s}", f"{s}_optimizer {{ lr: 0.05 }} constant_learning_rate {{}}", features=D8[:2] + [feature("id", "q", "embedding_dim: 8 num_buckets: 9 weighted: true pooling: 'mean'")], names=["a0", "a1", "q"])
    opt(f"dense_{s}", f"{s}_optimizer {{ lr: 0.05 }} constant_learning_rate {{}}", features=D8[:2] + [feature("raw", "q", "embedding_dim: 8 autodis { num_channels: 3 }"), feature("raw", "p", "embedding_dim: 8 mlp {}")], names=["a0", "a1", "q", "p"])
