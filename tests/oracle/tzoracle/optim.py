"""Optimizers and schedules (FORMAT 10) of embedding tables and of dense parameters."""

import math

import torch


class Tables:
    """A sparse optimizer: `update` moves the rows of a table that a step looked up."""

    def __init__(self, config):
        self.kind, self.config = next((n, m[-1]) for n, m in config.fields.items() if n.endswith("_optimizer"))
        self.lr = self.config.get("lr", 0.002)
        self.state = {}

    def update(self, name, weight, grad, rows, lr, step):
        c = self.config
        start = c.get("initial_accumulator_value", 0.0)
        if self.kind == "adagrad_optimizer":
            s = self.state.setdefault(name, torch.full_like(weight, start))
            s += grad**2
            weight -= lr * grad / (s.sqrt() + 1e-8)
        elif self.kind == "rowwise_adagrad_optimizer":
            s = self.state.setdefault(name, torch.zeros(len(weight), 1))
            s += (grad**2).mean(-1, keepdim=True)
            weight -= lr * grad / (s.sqrt() + 1e-8)
        elif self.kind == "adam_optimizer":
            b1, b2 = c.get("beta1", 0.9), c.get("beta2", 0.999)
            m, v = self.state.setdefault(name, (torch.zeros_like(weight), torch.zeros_like(weight)))
            g = grad[rows]
            m[rows] = b1 * m[rows] + (1 - b1) * g
            v[rows] = b2 * v[rows] + (1 - b2) * g**2
            m_hat, v_hat = m[rows] / (1 - b1**step), v[rows] / (1 - b2**step)
            weight[rows] -= lr * (m_hat / (v_hat.sqrt() + 1e-8) + c.get("weight_decay", 0.0) * weight[rows])
        else:
            raise NotImplementedError(self.kind)


def dense_optimizer(config, parameters):
    """torch's optimizer of the dense parameters."""
    kind, c = next((n, m[-1]) for n, m in config.fields.items() if n.endswith("_optimizer"))
    lr = c.get("lr", 0.002)
    if kind in ("adam_optimizer", "adamw_optimizer"):
        make = torch.optim.Adam if kind == "adam_optimizer" else torch.optim.AdamW
        betas = (c.get("beta1", 0.9), c.get("beta2", 0.999))
        return make(parameters, lr=lr, betas=betas, weight_decay=c.get("weight_decay", 0.0), eps=1e-8)
    if kind == "adagrad_optimizer":
        return torch.optim.Adagrad(parameters, lr=lr, eps=1e-10, weight_decay=c.get("weight_decay", 0.0),
                                   initial_accumulator_value=c.get("initial_accumulator_value", 0.0))
    if kind == "sgd_optimizer":
        return torch.optim.SGD(parameters, lr=lr, momentum=c.get("momentum", 0.9), weight_decay=c.get("weight_decay", 0.0))
    raise NotImplementedError(kind)


def schedule(config, lr, k):
    """The learning rate after k steps."""
    kind, c = next(((n, m[-1]) for n, m in config.fields.items() if n.endswith("_learning_rate")), ("constant_learning_rate", None))
    if kind == "constant_learning_rate" or lr == 0:
        return lr
    warmup, low = c.get("warmup_size", 0), c.get("min_learning_rate", 0.0)
    if k < warmup:
        start = c.get("warmup_learning_rate", 0.0)
        return start + (lr - start) * k / warmup
    if kind == "exponential_decay_learning_rate":
        p = (k - warmup) / c.get("decay_size")
        return max(lr * c.get("decay_factor", 0.95) ** (math.floor(p) if c.get("staircase", True) else p), low)
    if kind == "cosine_annealing_learning_rate":
        t = min(k - warmup, c.get("T_max"))
        return low + (lr - low) * (1 + math.cos(math.pi * t / c.get("T_max"))) / 2
    if kind == "manual_step_learning_rate":
        i = sum(size < k for size in c.list("schedule_sizes"))
        return c.list("learning_rates")[i - 1] if i else lr
    if kind == "cosine_annealing_warm_restarts_learning_rate":
        t, period = k - warmup, c.get("T_0")
        while t >= period:
            t, period = t - period, period * c.get("T_mult", 1)
        return low + (lr - low) * (1 + math.cos(math.pi * t / period)) / 2
    raise NotImplementedError(kind)
