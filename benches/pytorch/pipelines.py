"""Configurations of the families, in the text format of TorchEasyRec."""

from models import DIM, IDS, MOST_STEPS, NUMBERS, STEP_IDS, TABLE_ROWS, TASKS, Family, Mmoe


def pipeline(family: type[Family]) -> str:
    """The text of a `pipeline.config`."""
    used = [name for _, names in family.GROUPS.values() for name in names]
    features = [
        f'id_feature {{ feature_name: "{name}" expression: "item:{name}" '
        f"embedding_dim: {DIM} num_buckets: {TABLE_ROWS} }}"
        for name in IDS
    ]
    features += [
        f'raw_feature {{ feature_name: "{name}" expression: "item:{name}" }}' for name in NUMBERS if name in used
    ]
    if "seq" in family.GROUPS:
        steps = (
            f'features {{ id_feature {{ feature_name: "{name}" expression: "item:{name}" embedding_dim: {DIM} '
            f'num_buckets: {TABLE_ROWS} embedding_name: "{name}_emb" }} }}'
            for name in STEP_IDS
        )
        features.append(
            f'sequence_feature {{ sequence_name: "click" sequence_length: {MOST_STEPS} {" ".join(steps)} }}'
        )
    groups = (
        f'feature_groups {{ group_name: "{group}" group_type: {kind} '
        + " ".join(f'feature_names: "{name}"' for name in names)
        + " }"
        for group, (kind, names) in family.GROUPS.items()
    )
    losses = [] if family is Mmoe else ["losses { binary_cross_entropy {} }"]
    lines = [
        'train_input_path: "data.parquet"',
        'model_dir: "experiments/model"',
        "train_config {",
        "  sparse_optimizer { adagrad_optimizer { lr: 0.01 initial_accumulator_value: 0.1 } constant_learning_rate {} }",
        "  dense_optimizer { adam_optimizer { lr: 0.001 } constant_learning_rate {} }",
        "  num_steps: 1",
        "}",
        "data_config {",
        "  batch_size: 512",
        "  dataset_type: ParquetDataset",
        "  fg_mode: FG_NONE",
        *(f'  label_fields: "{label}"' for label in TASKS.values()),
        "}",
        *(f"feature_configs {{ {feature} }}" for feature in features),
        "model_config {",
        *(f"  {line}" for line in [*groups, family.CONFIG, *losses]),
        "}",
    ]
    return "\n".join(lines) + "\n"
