"""The four families as in TorchEasyRec: modules under the reference's parameter names, groups and messages."""

import torch
from torch import Tensor, nn
from torch.nn import functional

DIM = 16
WIDE_DIM = 4
TABLE_ROWS = 10_000
MOST_STEPS = 50
TOWER = (512, 256, 128)
ATTENTION = (256, 64)
TOWER_UNITS = f"hidden_units: {list(TOWER)}"
IDS = [f"id_{index:02}" for index in range(20)]
NUMBERS = [f"number_{index:02}" for index in range(13)]
# Every step of a history has two ids, from the tables of the first two features.
STEP_IDS = IDS[:2]
TASKS = {"ctr": "clk", "cvr": "buy"}

Batch = dict[str, Tensor]
"""`ids` [F, B] and their `offsets` [B + 1], `numbers` [B, N], `steps` [2, B, T] padded with 0, and `lengths` [B]."""


class Mlp(nn.Module):
    """Linear maps, each with a ReLU behind it."""

    def __init__(self, width: int, units: tuple[int, ...]) -> None:
        super().__init__()
        widths = [width, *units]
        self.mlp = nn.Sequential(*(Layer(a, b) for a, b in zip(widths, units)))

    def forward(self, x: Tensor) -> Tensor:
        return self.mlp(x)


class Layer(nn.Module):
    """A linear map and a ReLU."""

    def __init__(self, width: int, units: int) -> None:
        super().__init__()
        self.perceptron = nn.Sequential(nn.Linear(width, units), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return self.perceptron(x)


class Pooled(nn.Module):
    """Tables with a bag for each feature, whose results are concatenated."""

    def __init__(self, suffixes: dict[str, int]) -> None:
        super().__init__()
        self.suffixes = suffixes
        bags = {
            f"{name}_emb{suffix}": nn.EmbeddingBag(TABLE_ROWS, dim, mode="sum", include_last_offset=True)
            for suffix, dim in suffixes.items()
            for name in IDS
        }
        self.embedding_bags = nn.ModuleDict(bags)

    def forward(self, batch: Batch) -> list[Tensor]:
        """A tensor [B, 20 * dim] for each suffix."""
        ids, offsets = batch["ids"], batch["offsets"]

        def group(suffix: str) -> Tensor:
            bags = (self.embedding_bags[f"{name}_emb{suffix}"] for name in IDS)
            return torch.cat([bag(ids[index], offsets) for index, bag in enumerate(bags)], dim=1)

        return [group(suffix) for suffix in self.suffixes]


class Unpooled(nn.Module):
    """Tables of a sequence group."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.ModuleDict({f"{name}_emb": nn.Embedding(TABLE_ROWS, DIM) for name in STEP_IDS})

    def forward(self, ids: Tensor) -> Tensor:
        """The rows of ids [2, ..], concatenated: [.., 2 * dim]."""
        return torch.cat([self.embeddings[f"{name}_emb"](ids[index]) for index, name in enumerate(STEP_IDS)], dim=-1)


class Group(nn.Module):
    """Embeddings under the names of the reference's embedding group."""

    def __init__(self, suffixes: dict[str, int], sequences: bool = False) -> None:
        super().__init__()

        def nested(**modules: nn.Module) -> nn.ModuleDict:
            return nn.ModuleDict({"__BASE__": nn.ModuleDict(modules)})

        self.emb_impls = nested(ebc=Pooled(suffixes))
        if sequences:
            self.seq_emb_impls = nested(ec_dict=nn.ModuleDict({str(DIM): Unpooled()}))

    def forward(self, batch: Batch) -> list[Tensor]:
        return self.emb_impls["__BASE__"]["ebc"](batch)

    def sequence(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The query [B, 32] and the steps [B, T, 32]."""
        tables = self.seq_emb_impls["__BASE__"]["ec_dict"][str(DIM)]
        return tables(batch["ids"][: len(STEP_IDS)]), tables(batch["steps"])


def outputs(logits: dict[str, Tensor]) -> Batch:
    """The columns that the reference writes for logits [B, 1]: `logits` and `probs`, each with a suffix."""
    flat = {suffix: value.squeeze(1) for suffix, value in logits.items()}
    return {f"logits{suffix}": value for suffix, value in flat.items()} | {
        f"probs{suffix}": torch.sigmoid(value) for suffix, value in flat.items()
    }


class Family(nn.Module):
    """A model: its message in `model_config`, and the type and features of its groups."""

    CONFIG: str
    GROUPS: dict[str, tuple[str, list[str]]]


class DeepFm(Family):
    """A sum of wide columns, a factorization machine and a tower."""

    CONFIG = f"deepfm {{ deep {{ {TOWER_UNITS} }} }}"
    GROUPS = {"wide": ("WIDE", IDS), "deep": ("DEEP", IDS)}

    def __init__(self) -> None:
        super().__init__()
        self.embedding_group = Group({"_wide": WIDE_DIM, "": DIM})
        self.deep_mlp = Mlp(len(IDS) * DIM, TOWER)
        self.output_mlp = nn.Linear(TOWER[-1], 1)

    def forward(self, batch: Batch) -> Batch:
        wide, deep = self.embedding_group(batch)
        fields = deep.view(-1, len(IDS), DIM)
        pairs = 0.5 * (fields.sum(1).square() - fields.square().sum(1))
        rest = wide.sum(1, keepdim=True) + pairs.sum(1, keepdim=True)
        return outputs({"": rest + self.output_mlp(self.deep_mlp(deep))})


class Experts(nn.Module):
    """Mixtures of three experts, one for each task."""

    def __init__(self, width: int, tasks: int) -> None:
        super().__init__()
        self.expert_mlps = nn.ModuleList(Mlp(width, TOWER) for _ in range(3))
        self.gate_finals = nn.ModuleList(nn.Linear(width, 3) for _ in range(tasks))

    def forward(self, x: Tensor) -> list[Tensor]:
        experts = torch.stack([expert(x) for expert in self.expert_mlps], dim=1)
        gates = (torch.softmax(gate(x), dim=1).unsqueeze(1) for gate in self.gate_finals)
        return [torch.matmul(gate, experts).squeeze(1) for gate in gates]


class Task(nn.Module):
    """The tower of a task."""

    def __init__(self) -> None:
        super().__init__()
        self.tower_mlp = Mlp(TOWER[-1], TOWER)
        self.linear = nn.Linear(TOWER[-1], 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.tower_mlp(x))


class Mmoe(Family):
    """Experts, and a tower for each of two tasks."""

    CONFIG = (
        f"mmoe {{ num_expert: 3 expert_mlp {{ {TOWER_UNITS} }} "
        + " ".join(
            f'task_towers {{ tower_name: "{task}" label_name: "{label}" mlp {{ {TOWER_UNITS} }} '
            "losses { binary_cross_entropy {} } }"
            for task, label in TASKS.items()
        )
        + " }"
    )
    GROUPS = {"all": ("DEEP", IDS)}

    def __init__(self) -> None:
        super().__init__()
        self.embedding_group = Group({"": DIM})
        self.mmoe = Experts(len(IDS) * DIM, len(TASKS))
        self._task_tower = nn.ModuleList(Task() for _ in TASKS)

    def forward(self, batch: Batch) -> Batch:
        rows = self.mmoe(self.embedding_group(batch)[0])
        return outputs({f"_{task}": tower(x) for task, tower, x in zip(TASKS, self._task_tower, rows)})


class Dlrm(Family):
    """Inner products of the features' pairs, and a tower."""

    CONFIG = f"dlrm {{ dense_mlp {{ hidden_units: {[*TOWER[:-1], DIM]} }} final {{ {TOWER_UNITS} }} }}"
    GROUPS = {"dense": ("DEEP", NUMBERS), "sparse": ("DEEP", IDS)}

    def __init__(self) -> None:
        super().__init__()
        fields = len(IDS) + 1
        self.embedding_group = Group({"": DIM})
        self.dense_mlp = Mlp(len(NUMBERS), (*TOWER[:-1], DIM))
        self.final_mlp = Mlp(fields * (fields - 1) // 2 + fields * DIM, TOWER)
        self.output_mlp = nn.Linear(TOWER[-1], 1)
        self.register_buffer("pairs", torch.triu_indices(fields, fields, offset=1), persistent=False)

    def forward(self, batch: Batch) -> Batch:
        (sparse,), dense = self.embedding_group(batch), self.dense_mlp(batch["numbers"])
        fields = torch.cat([dense.unsqueeze(1), sparse.view(-1, len(IDS), DIM)], dim=1)
        products = torch.bmm(fields, fields.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return outputs({"": self.output_mlp(self.final_mlp(torch.cat([products, dense, sparse], dim=1)))})


class Din(nn.Module):
    """Attention of a query over padded steps."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mlp = Mlp(4 * width, ATTENTION)
        self.linear = nn.Linear(ATTENTION[-1], 1)

    def forward(self, query: Tensor, steps: Tensor, lengths: Tensor) -> Tensor:
        q = query.unsqueeze(1).expand(-1, steps.shape[1], -1)
        scores = self.linear(self.mlp(torch.cat([q, steps, q - steps, q * steps], dim=-1))).transpose(1, 2)
        is_valid = (torch.arange(steps.shape[1]) < lengths.unsqueeze(1)).unsqueeze(1)
        scores = torch.where(is_valid, scores, float(-(2**31) + 1))
        return torch.matmul(functional.softmax(scores, dim=-1), steps).squeeze(1)


class MultiTowerDin(Family):
    """A tower, and attention over a history."""

    CONFIG = (
        f'multi_tower_din {{ towers {{ input: "deep" mlp {{ {TOWER_UNITS} }} }} '
        f'din_towers {{ input: "seq" attn_mlp {{ hidden_units: {list(ATTENTION)} }} }} '
        "final { hidden_units: [64] } }"
    )
    GROUPS = {"deep": ("DEEP", IDS), "seq": ("SEQUENCE", [*STEP_IDS, *(f"click__{name}" for name in STEP_IDS)])}

    def __init__(self) -> None:
        super().__init__()
        width = len(STEP_IDS) * DIM
        self.embedding_group = Group({"": DIM}, sequences=True)
        self.towers = nn.ModuleDict({"deep": Mlp(len(IDS) * DIM, TOWER)})
        self.din_towers = nn.ModuleList([Din(width)])
        self.final_mlp = Mlp(TOWER[-1] + width, (64,))
        self.output_mlp = nn.Linear(64, 1)

    def forward(self, batch: Batch) -> Batch:
        deep = self.towers["deep"](self.embedding_group(batch)[0])
        history = self.din_towers[0](*self.embedding_group.sequence(batch), batch["lengths"])
        return outputs({"": self.output_mlp(self.final_mlp(torch.cat([deep, history], dim=1)))})


FAMILIES: dict[str, type[Family]] = {"deepfm": DeepFm, "mmoe": Mmoe, "dlrm": Dlrm, "din": MultiTowerDin}
