"""A small builder of ONNX graphs: nodes and constants are named automatically.

No torch here: `elmokit.integrations.onnx`, which runs the files, reads the constants below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import MissingExtraError

OPSET = 17
IR_VERSION = 8
"""What onnxruntime 1.12 and everything newer reads."""

FORMAT_VERSION = "1"
METADATA_PREFIX = "elmokit."
"""Our entries in a file's metadata begin with this."""

Dims = Sequence[int | str]
"""A shape; a name is a size that is known at run time only."""

# Rows are multiplied as unsigned 7-bit numbers: two products of 127 · 127 fit the 16 bits in which
# CPUs without VNNI add them, so no machine rounds where another does not.
ROW_LIMIT = 63
ROW_ZERO = 64
COLUMN_LIMIT = 127
SMALLEST_SCALE = 1e-30


def import_onnx() -> Any:
    """The package onnx, or a `MissingExtraError`."""
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError("onnx", "onnx", "Writing ONNX files") from error
    return onnx


class GraphBuilder:
    """Collects the nodes of a graph; a value is identified by its name.

    All names begin with that of the graph. `parent` is the graph in whose node this one runs; it
    holds the constants of both.
    """

    def __init__(self, name: str, *, int8: bool, parent: GraphBuilder | None = None) -> None:
        self._onnx = import_onnx()
        self.name = name
        self.int8 = int8
        self._constants: list[Any] = [] if parent is None else parent._constants
        self._parent = parent
        self._nodes: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def constant(self, value: Any, dtype: str = "float32") -> str:
        """A fixed array; 64-bit whole numbers are for shapes and indices."""
        name = f"{self.name}.constant{len(self._constants)}"
        array = np.asarray(value, dtype=dtype)
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def input(self, name: str, dtype: str, dims: Dims) -> str:
        """A value that comes from outside."""
        self._inputs.append(self._value(name, dtype, dims))
        return name

    def optional_input(self, name: str, default: NDArray[np.float32], dims: Dims) -> str:
        """The same, with a value for callers that leave it out."""
        self._constants.append(self._onnx.numpy_helper.from_array(default, name))
        return self.input(name, "float32", dims)

    def output(self, value: str, name: str, dtype: str, dims: Dims) -> None:
        """A value that goes outside, under a name of its own."""
        self._nodes.append(self._onnx.helper.make_node("Identity", [value], [name]))
        self._outputs.append(self._value(name, dtype, dims))

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """A node with one output."""
        return self.add_many(op, 1, *inputs, **attributes)[0]

    def add_many(self, op: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """A node with `count` outputs."""
        outputs = [f"{self.name}.{op}{len(self._nodes)}.{i}" for i in range(count)]
        self._nodes.append(self._onnx.helper.make_node(op, list(inputs), outputs, **attributes))
        return outputs

    def matmul(self, x: str, matrix: NDArray[np.float32], *, outliers: bool = False) -> str:
        """(..., n) times a fixed (n, m).

        With `int8` each column of the matrix is stored as 8-bit numbers with a scale, and each row
        of x is quantized to 7 bits at run time with a scale of its own: rows are independent, so
        a sentence does not depend on its batch. Rows with `outliers`, a few large values, stay in
        float32: they would set the scale, and little would be left of the others.
        """
        if not self.int8:
            return self.add("MatMul", x, self.constant(matrix))
        column_scale = np.maximum(np.abs(matrix).max(axis=0), SMALLEST_SCALE) / COLUMN_LIMIT  # (m,)
        columns = np.rint(matrix / column_scale)
        if outliers:
            outer = self._parent or self  # made once per run, not once per step
            real = self._onnx.TensorProto.FLOAT
            columns = outer.add("Cast", outer.constant(columns, "int8"), to=real)
            return self.add("MatMul", x, outer.add("Mul", columns, outer.constant(column_scale)))
        largest = self.add("ReduceMax", self.add("Abs", x), axes=[-1], keepdims=1)  # (..., 1)
        row_scale = self.add("Mul", largest, self.constant(1 / ROW_LIMIT))
        row_scale = self.add("Max", row_scale, self.constant(SMALLEST_SCALE))
        rows = self.add("Round", self.add("Div", x, row_scale))
        rows = self.add("Add", rows, self.constant(ROW_ZERO))
        rows = self.add("Cast", rows, to=self._onnx.TensorProto.UINT8)  # (..., n)
        whole = self.add(
            "MatMulInteger", rows, self.constant(columns, "int8"), self.constant(ROW_ZERO, "uint8")
        )
        real = self.add("Cast", whole, to=self._onnx.TensorProto.FLOAT)
        return self.add("Mul", self.add("Mul", real, row_scale), self.constant(column_scale))

    def body(self, name: str) -> GraphBuilder:
        """A graph for the inside of one of this graph's nodes."""
        return type(self)(f"{self.name}.{name}", int8=self.int8, parent=self)

    def proto(self) -> Any:
        """The finished graph."""
        constants = self._constants if self._parent is None else []
        return self._onnx.helper.make_graph(
            self._nodes, self.name, self._inputs, self._outputs, initializer=constants
        )

    def _value(self, name: str, dtype: str, dims: Dims) -> Any:
        kind = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self._onnx.helper.make_tensor_value_info(name, kind, list(dims))
