"""Write tests/golden/tf-bundle/ with TensorFlow: small checkpoints and what TensorFlow reads there.

Run it in a throwaway environment with TensorFlow (1.15 or 2.15; the files here are from 1.15.5):

    python tests/golden/make/tf_bundle.py tests/golden/tf-bundle

Two checkpoints come out. `kinds` holds one tensor of every dtype, odd shapes and names, and slices
that were saved one by one; `shards` comes from a `Saver(sharded=True)` over two devices, with
partitioned variables across both. Beside each, `tensors.npz` has every tensor as TensorFlow's own
reader returned it (bfloat16 cast to float32 by TensorFlow, which is exact).
"""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
v1.disable_eager_execution()


def save_kinds(folder):
    """Everything that one call of the SaveV2 operation can hold."""
    rng = np.random.RandomState(1)
    tensors = {
        "dtype/float32": rng.randn(3, 5).astype(np.float32),
        "dtype/float64": rng.randn(7),
        "dtype/float16": rng.randn(2, 3, 2).astype(np.float16),
        "dtype/int32": rng.randint(-(2**31), 2**31, (4,), dtype=np.int64).astype(np.int32),
        "dtype/int64": np.array([-(2**63), -1, 0, 2**63 - 1]),
        "dtype/int8": np.array([-128, -1, 0, 127], np.int8),
        "dtype/uint8": np.array([[0, 1], [254, 255]], np.uint8),
        "dtype/bool": np.array([True, False, True]),
        "special/floats": np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45], np.float32),
        "shape/scalar": np.float32(2.5),
        "shape/scalar_int64": np.int64(935588),
        "shape/empty": np.zeros((0, 3), np.float32),
        "shape/rank_six": rng.randn(1, 2, 1, 3, 1, 2).astype(np.float32),
        "name/été 中": np.array([1.0], np.float32),
    }
    for number in range(40):  # enough that keys are shared across restart points
        tensors[f"many/layer_{number}/kernel"] = np.full((2,), number, np.float32)
    names, specs, values = [], [], []
    for name, value in tensors.items():
        names.append(name)
        specs.append("")
        values.append(tf.constant(value))
    names.append("dtype/bfloat16")
    specs.append("")
    values.append(tf.cast(tf.constant(rng.randn(4, 3).astype(np.float32)), tf.bfloat16))
    names.append("dtype/string")
    specs.append("")
    values.append(tf.constant(["one", "two"]))
    # Starts and lengths on both sides of 64 and 8192, where their encoding in the keys grows.
    long = rng.randn(9000, 1).astype(np.float32)
    for start, stop in [(0, 63), (63, 128), (128, 8300), (8300, 9000)]:
        names.append("slices/rows")
        specs.append(f"9000 1 {start},{stop - start}:-")
        values.append(tf.constant(long[start:stop]))
    grid = rng.randint(0, 100, (5, 6))
    for row, column in [(0, 0), (0, 4), (2, 0), (2, 4)]:
        part = grid[row : 5 if row else 2, column : 6 if column else 4]
        names.append("slices/grid")
        specs.append(f"5 6 {row},{part.shape[0]}:{column},{part.shape[1]}")
        values.append(tf.constant(part))
    order = np.argsort([name.encode() for name in names], kind="stable")
    prefix = str(folder / "kinds.ckpt-1")
    save = tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=[names[i].encode() for i in order],
        shape_and_slices=[specs[i] for i in order],
        tensors=[values[i] for i in order],
    )
    with v1.Session() as session:
        session.run(save)


def save_shards(folder):
    """Two data files, and partitioned variables whose parts lie in both."""

    variables = []

    def devices(operation):
        if operation.type == "VariableV2":
            variables.append(operation)
        return f"/cpu:{len(variables) % 2}"

    def initial(seed, shape):
        return np.random.RandomState(seed).randn(*shape).astype(np.float32)

    with v1.device(devices):
        for seed, (name, shape, axis, parts) in enumerate(
            [("embed", (300, 4), 0, 3), ("softmax", (4, 7), 1, 2)]
        ):
            values = initial(seed, shape)

            def part(shape, dtype=None, partition_info=None, values=values):
                start = partition_info.var_offset if partition_info else [0] * len(shape)
                region = tuple(slice(start[i], start[i] + int(n)) for i, n in enumerate(shape))
                return tf.constant(values[region])

            v1.get_variable(
                name,
                shape,
                initializer=part,
                partitioner=v1.fixed_size_partitioner(parts, axis=axis),
                use_resource=False,
            )
        for number in range(3):
            v1.get_variable(
                f"dense_{number}", initializer=initial(10 + number, (2, 3)), use_resource=False
            )
        v1.train.get_or_create_global_step()
    saver = v1.train.Saver(sharded=True)
    with v1.Session(config=v1.ConfigProto(device_count={"CPU": 2})) as session:
        session.run(v1.global_variables_initializer())
        saver.save(session, str(folder / "shards.ckpt"), global_step=7, write_meta_graph=False)


def write_expected(folder, prefix):
    """Every readable tensor as TensorFlow returns it."""
    reader = v1.train.NewCheckpointReader(str(folder / prefix))
    expected = {}
    for name, dtype in sorted(reader.get_variable_to_dtype_map().items()):
        if dtype == tf.string:
            continue
        with tf.Graph().as_default(), v1.Session() as session:
            value = tf.raw_ops.RestoreV2(
                prefix=str(folder / prefix),
                tensor_names=[name],
                shape_and_slices=[""],
                dtypes=[dtype],
            )[0]
            expected[name] = session.run(
                tf.cast(value, tf.float32) if dtype == tf.bfloat16 else value
            )
        assert list(expected[name].shape) == reader.get_variable_to_shape_map()[name]
    np.savez_compressed(str(folder / "tensors.npz"), **expected)
    return expected


def main():
    """Write both checkpoints and their expected tensors."""
    root = pathlib.Path(sys.argv[1])
    for folder, save, prefix in [
        ("kinds", save_kinds, "kinds.ckpt-1"),
        ("shards", save_shards, "shards.ckpt-7"),
    ]:
        (root / folder).mkdir(parents=True, exist_ok=True)
        with tf.Graph().as_default():
            save(root / folder)
        expected = write_expected(root / folder, prefix)
        print(folder, len(expected), "tensors", sorted(p.name for p in (root / folder).iterdir()))


if __name__ == "__main__":
    main()
