"""Ranking models with several tasks (FORMAT 6): functions of a Model that return logits by output suffix."""

import torch

from .modules import activation, dropout, linear, mask_net_module, mixture, mlp, mmoe, optional_mlp, task_tower


def towers(m, config, inputs):
    return {
        f"_{t.get('tower_name')}": task_tower(m.c, f"model._task_tower.{i}", x, t)
        for i, (t, x) in enumerate(zip(config.list("task_towers"), inputs))
    }


def simple_multi_task(m, config):
    x = m.group(m.first)
    return towers(m, config, [x] * len(config.list("task_towers")))


def mmoe_model(m, config):
    return towers(m, config, mmoe(m.c, "model.mmoe", m.group(m.first), config, len(config.list("task_towers"))))


def ple(m, config):
    tasks = len(config.list("task_towers"))
    shared = m.group(m.first)
    inputs = [shared] * tasks
    networks = config.list("extraction_networks")
    for i, net in enumerate(networks):
        name = f"model._extraction_nets.{i}"
        common = [mlp(m.c, f"{name}._shared_layers.{k}", shared, net.get("share_expert_net")) for k in range(net.get("share_num"))]
        own = [
            [mlp(m.c, f"{name}._task_layers.{t}.{k}", inputs[t], net.get("task_expert_net"))
             for k in range(net.get("expert_num_per_task"))]
            for t in range(tasks)
        ]
        new = []
        for t in range(tasks):
            experts = own[t] + common
            new.append(mixture(linear(m.c, f"{name}._task_gates.{t}", inputs[t], len(experts)), experts))
        if i + 1 < len(networks):
            experts = [e for t in own for e in t] + common
            shared = mixture(linear(m.c, f"{name}._shared_gate", shared, len(experts)), experts)
        inputs = new
    return towers(m, config, inputs)


def task_inputs(m, config):
    """The input of each task of dbmtl and dc2vr before its own MLP, then that MLP's output by task name."""
    x = m.group(m.first)
    if config.has("mask_net"):
        x = mask_net_module(m.c, "model.mask_net", x, config.get("mask_net"))
    x = optional_mlp(m.c, "model.bottom_mlp", x, config, "bottom_mlp")
    tasks = config.list("task_towers")
    inputs = mmoe(m.c, "model.mmoe", x, config, len(tasks)) if config.has("expert_mlp") else [x] * len(tasks)
    names = [t.get("tower_name") for t in tasks]
    return {n: optional_mlp(m.c, f"model.task_mlps.{n}", x, t, "mlp") for n, x, t in zip(names, inputs, tasks)}


def task_outputs(m, config, found):
    return {
        f"_{t.get('tower_name')}": linear(m.c, f"model.task_outputs.{i}", found[t.get("tower_name")], t.get("num_class", 1))
        for i, t in enumerate(config.list("task_towers"))
    }


def dbmtl(m, config):
    own, found = task_inputs(m, config), {}
    for task in config.list("task_towers"):
        name = task.get("tower_name")
        x = own[name]
        if task.has("relation_mlp"):
            x = torch.cat([x] + [found[r] for r in task.list("relation_tower_names")], -1)
            x = mlp(m.c, f"model.relation_mlps.{name}", x, task.get("relation_mlp"))
        found[name] = x
    return task_outputs(m, config, found)


def orthogonal(c, name, rows, columns):
    """A matrix [rows, columns] with orthonormal columns, from torch's householder parametrization."""
    base = f"{name}.parametrizations.weight"
    if c.params.create and f"{base}.original" not in c.params.tensors:
        module = torch.nn.Linear(columns, rows, bias=False)
        with torch.no_grad():
            module.weight.copy_(torch.randn(rows, columns, generator=c.params.generator))
        module = torch.nn.utils.parametrizations.orthogonal(module, orthogonal_map="householder")
        with torch.no_grad():
            original = module.parametrizations.weight.original
            original.add_(torch.randn(rows, columns, generator=c.params.generator).tril(-1) * 0.3)
        for key, value in module.state_dict().items():
            c.params.tensors[f"{name}.{key}"] = value.clone()
    x = c.get(f"{base}.original", (rows, columns))
    p = c.get(f"{base}.0.base", (rows, rows))
    a = x.tril(-1)
    q = torch.eye(rows)
    for j in range(columns):
        v = torch.eye(rows)[j] + a[:, j]
        q = q - 2 / (1 + (a[:, j] ** 2).sum()) * torch.outer(q @ v, v)
    return p @ (q[:, :columns] * x.diagonal().detach().trunc())


def dc2vr(m, config):
    own, found = task_inputs(m, config), {}
    for task in config.list("task_towers"):
        name = task.get("tower_name")
        x = own[name]
        if task.has("low_rank_dim"):
            rank, s = task.get("low_rank_dim"), torch.cat([found[r] for r in task.list("intervention_tower_names")], -1)
            r_b = orthogonal(m.c, f"model.intervention.{name}.base_rotate_layer", x.shape[-1], rank)
            r_s = orthogonal(m.c, f"model.intervention.{name}.source_rotate_layer", s.shape[-1], rank)
            x = x + (x @ r_b - s @ r_s) @ r_b.T
        found[name] = x
    return task_outputs(m, config, found)


def gate(c, name, z, hidden, out, gamma):
    h = torch.relu(linear(c, f"{name}.dense_layers.0", z, hidden))
    return gamma * torch.sigmoid(linear(c, f"{name}.dense_layers.2", h, out))


def pepnet(m, config):
    x = m.group("all")
    width = x.shape[-1]
    if m.has_group("domain"):
        z = torch.cat([m.group("domain"), x.detach()], -1)
        hidden = config.get("epnet_hidden_unit", width)
        x = gate(m.c, "model.epnet.gate_nu", z, hidden, width, config.get("epnet_gamma", 2.0)) * x
    units, tasks = config.list("ppnet_hidden_units"), config.list("task_towers")
    ratios = config.list("ppnet_dropout_ratio")
    z = torch.cat([m.group("uia"), x.detach()], -1)
    out = {}
    domains = config.get("task_domain_num", 1)
    for i, task in enumerate(tasks):
        h = x
        for j, unit in enumerate(units):
            at = i * len(units) + j
            h = linear(m.c, f"model.ppnet.linears.{at}", h, unit)
            h = activation(m.c, f"model.ppnet.activations.{at}", h, config.get("ppnet_activation", "nn.ReLU"))
            if ratios:
                h = dropout(m.c, h, ratios[j] if len(ratios) > 1 else ratios[0])
            h = h * gate(m.c, f"model.ppnet.gate_nus.{at}", z, unit, unit, config.get("ppnet_gamma", 2.0))
        name = f"_{task.get('tower_name')}"
        if config.has("domain_input_name"):
            for j in range(domains):
                out[f"{name}_{j}"] = task_tower(m.c, f"model._task_tower.{i * domains + j}", h, task)
        else:
            out[name] = task_tower(m.c, f"model._task_tower.{i}", h, task)
    return out


def rocket_launching(m, config):
    x = optional_mlp(m.c, "model.share_mlp", m.group(m.first), config, "share_mlp")
    out = {}
    if m.c.training or m.c.params.create:
        booster = mlp(m.c, "model.booster_mlp", x, config.get("booster_mlp"))
        out["_booster"] = linear(m.c, "model.booster_linear", booster, m.classes)
    light = mlp(m.c, "model.light_mlp", x.detach(), config.get("light_mlp"))
    out["_light"] = linear(m.c, "model.light_linear", light, m.classes)
    if m.c.training:
        m.c.losses["hint_l2_loss"] = ((out["_light"] - out["_booster"].detach()) ** 2).mean()
    else:
        out.pop("_booster", None)
    return out


MODELS = {
    "simple_multi_task": simple_multi_task,
    "mmoe": mmoe_model,
    "ple": ple,
    "dbmtl": dbmtl,
    "dc2vr": dc2vr,
    "pepnet": pepnet,
    "rocket_launching": rocket_launching,
}
