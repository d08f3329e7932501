"""Pieces of pipeline texts."""

HEAD = """train_input_path: "data.parquet" model_dir: "m"
train_config { sparse_optimizer { %s } dense_optimizer { %s } num_steps: 6 }
data_config { batch_size: %d dataset_type: ParquetDataset fg_mode: FG_NONE num_workers: 0 %s }
"""


def pipeline(features, groups, model, labels=("clk",), batch=8, extra="", data="", sparse=None, dense=None):
    fields = " ".join(f'label_fields: "{n}"' for n in labels)
    sparse = sparse or "rowwise_adagrad_optimizer { lr: 0.01 } constant_learning_rate {}"
    dense = dense or "adam_optimizer { lr: 0.001 } constant_learning_rate {}"
    blocks = "\n".join(f"feature_configs {{ {f} }}" for f in features)
    return HEAD % (sparse, dense, batch, fields + " " + data) + blocks + "\nmodel_config {\n" + groups + "\n" + model + "\n" + extra + "\n}\n"


def feature(kind, name, rest=""):
    source = {
        "lookup": f'map: "user:{name}_m" key: "item:{name}_k"',
        "match": f'nested_map: "user:{name}_m" pkey: "item:{name}_p" skey: "item:{name}_s"',
        "overlap": f'query: "user:{name}_q" title: "item:{name}_t"',
    }.get(kind, f'expression: "user:{name}"')
    return f'{kind}_feature {{ feature_name: "{name}" {source} {rest} }}'


def group(name, names, kind="DEEP", rest=""):
    listed = " ".join(f'feature_names: "{n}"' for n in names)
    return f'feature_groups {{ group_name: "{name}" {listed} group_type: {kind} {rest} }}'


def sequence(name, subs, rest='sequence_delim: ";"'):
    inner = " ".join(f"features {{ {s} }}" for s in subs)
    return f'sequence_feature {{ sequence_name: "{name}" sequence_length: 10 {rest} {inner} }}'


def units(*n, rest=""):
    return "{ " + " ".join(f"hidden_units: {u}" for u in n) + " " + rest + " }"


BCE = "metrics { auc {} } losses { binary_cross_entropy {} }"
D8 = [feature("id", f"a{i}", f"embedding_dim: 8 {r}") for i, r in enumerate([
    "hash_bucket_size: 40", "num_buckets: 20 pooling: 'mean'", "vocab_list: ['x','y','z']", "vocab_list: ['x','y','z'] default_bucketize_value: 1",
    "vocab_dict { key: 'b' value: 2 } vocab_dict { key: 'c' value: 9 }", "num_buckets: 30 fg_encoded_default_value: '3\\0035' pooling: 'mean'"])]
N8 = [f"a{i}" for i in range(6)]
