"""Values of a program that is being built: tensors and numbers that only the run time knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from flambeau.frontends.nn.core import context
from flambeau.frontends.nn.core.lazy import np
from flambeau.ir.comparisons import OPERATORS

if TYPE_CHECKING:
    from xdsl.ir import SSAValue

    from flambeau.dialects.torch.schema import SchemaType
    from flambeau.frontends.nn.core.tracer import Tracer
    from flambeau.infer.rules import Meta
    from flambeau.ir.dtypes import DType


class Value:
    """A value in a program. It has a type, and contents only when the program runs."""

    def __init__(self, ssa: SSAValue, tracer: Tracer) -> None:
        self._ssa = ssa
        self._tracer = tracer

    @property
    def ssa(self) -> SSAValue:
        """The value in the IR."""
        if self._tracer is not context.current():
            raise RuntimeError(
                "this value belongs to another program: a value can be used in the trace or module context "
                "that it was made in, and only there"
            )
        return self._ssa

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._ssa.type})"


def refuse(what: str, instead: str) -> NoReturn:
    """Explain that Python cannot look into a value of a program."""
    raise TypeError(f"{what}: it is a value in a program, and has contents only when the program runs. {instead}")


_NO_BRANCH = (
    "Python cannot branch on it: use flambeau.ops.where(condition, a, b) to choose, or decide by a Python value such "
    "as a size that is known."
)


# --- Numbers ---


class Scalar(Value):
    """A number that only the run time knows: an int, a float or a bool."""

    def __bool__(self) -> bool:
        refuse(f"a {type(self).__name__} has no truth value here", _NO_BRANCH)

    def __index__(self) -> int:
        refuse(
            f"a {type(self).__name__} is not a Python number",
            "Pass it on to ops as it is: they take it as a size, an index or a factor.",
        )

    __int__ = __float__ = __index__
    __hash__ = Value.__hash__

    def __neg__(self) -> Any:
        return context.current().compute("aten.neg", (self,))


_ARITHMETIC = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floordiv", "mod": "remainder",
}  # fmt: skip
"""Python's operators on numbers to ATen's: those of which either operand may be the Python number."""


def named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Set the name of a function that was made at run time; return it."""
    function.__name__ = function.__qualname__ = name
    return function


def _on_scalars(name: str, base: str, is_reflected: bool = False) -> None:
    def apply(self: Scalar, other: Any) -> Any:
        return context.current().compute(f"aten.{base}", (other, self) if is_reflected else (self, other))

    setattr(Scalar, name, named(name, apply))


for _name, _base in {**_ARITHMETIC, "pow": "pow", **{name: name for name in OPERATORS}}.items():
    _on_scalars(f"__{_name}__", _base)
for _name, _base in _ARITHMETIC.items():
    _on_scalars(f"__r{_name}__", _base, is_reflected=True)


class Int(Scalar):
    """An int that only the run time knows: the size of an unknown dimension, say."""


class Float(Scalar):
    """A float that only the run time knows."""


class Bool(Scalar):
    """A bool that only the run time knows."""


class Size(tuple[Any, ...]):
    """The shape of a tensor: ints, and `Int` where only the run time knows."""

    def numel(self) -> Any:
        """Return the number of elements, the product of the sizes."""
        total: Any = 1
        for d in self:
            total = d * total if isinstance(total, int) and total == 1 else total * d
        return total


# --- Tensors ---


class Tensor(Value):
    """A tensor in a program, with the operators, methods and attributes of `torch.Tensor`.

    Every ATen operator with a `self` is a method. `flambeau.ops` has all of them as functions.
    """

    def rebind(self, ssa: SSAValue) -> None:
        """Let this object stand for another value, as `x.unsqueeze_(0)` does."""
        self._ssa = ssa

    @property
    def meta(self) -> Meta:
        """What is known of the tensor: its shape and dtype."""
        return self._tracer.meta_of_tensor(self.ssa)

    @property
    def shape(self) -> Size:
        return Size(context.current().size(self, i) for i in range(self.ndim))

    @property
    def ndim(self) -> int:
        return self.meta.rank

    @property
    def dtype(self) -> DType:
        return self.meta.dtype

    @property
    def device(self) -> str:
        return "cpu"

    @property
    def layout(self) -> int:
        return 0

    @property
    def requires_grad(self) -> bool:
        return False

    @property
    def is_cuda(self) -> bool:
        return False

    @property
    def data(self) -> Any:
        return self

    @property
    def T(self) -> Tensor:
        return self._call("numpy_T") if self.ndim <= 2 else self._call("permute", list(range(self.ndim))[::-1])

    @property
    def mT(self) -> Tensor:
        return self._call("mT")

    @property
    def real(self) -> Tensor:
        return self._call("real") if self.dtype.is_complex else self

    @property
    def imag(self) -> Tensor:
        return self._call("imag")

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return context.current().invoke(f"aten.{name}", self, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        from flambeau.frontends.nn.core.operators import method

        found = method(name)
        if found is None:
            raise AttributeError(f"a tensor has no attribute {name!r}: PyTorch has no such method")
        return found.__get__(self)

    def __dir__(self) -> list[str]:
        from flambeau.frontends.nn.core.operators import method_names

        return sorted({*super().__dir__(), *method_names()})

    # --- What Python cannot do with a value of a program ---

    def __bool__(self) -> bool:
        refuse("a tensor has no truth value here", _NO_BRANCH)

    def __int__(self) -> int:
        refuse("a tensor is not a Python number", "Keep computing with the tensor, which ops take as it is.")

    __float__ = __index__ = __complex__ = __int__

    def item(self) -> Any:
        """Refuse: `flambeau.ops.item(x)` gives the number as a value in the program."""
        refuse("the number in a tensor is not known here", "Keep computing with the tensor, which ops take as it is.")

    def tolist(self) -> Any:
        refuse("the numbers in a tensor are not known here", "Return the tensor from the program and run it.")

    numpy = __array__ = tolist

    def backward(self, *_: Any) -> None:
        refuse("a tensor has no gradient here", "Programs are built without autograd.")

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of a 0-d tensor")
        length = self.meta.shape[0]
        if length is None:
            refuse("the length of this tensor is not known", "Use x.shape[0], which ops take as a size.")
        return length

    def __iter__(self) -> Iterator[Tensor]:
        if not self.ndim:
            raise TypeError("iteration over a 0-d tensor")
        if self.meta.shape[0] is None:
            refuse(
                "cannot iterate over a dimension of unknown size",
                "Write it as ops on the whole tensor, or give the size in nn.TensorSpec.",
            )
        return iter(self._call("unbind", 0))

    def __contains__(self, value: Any) -> bool:
        refuse("what a tensor contains is not known here", "Use (x == value).any(), which is a tensor.")

    __hash__ = Value.__hash__

    # --- Indexing ---

    def __getitem__(self, index: Any) -> Tensor:
        from flambeau.frontends.nn.core.indexing import get

        return get(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        from flambeau.frontends.nn.core.indexing import put

        put(self, index, value)

    # --- Operators ---

    def __neg__(self) -> Tensor:
        return self._call("neg")

    def __pos__(self) -> Tensor:
        return self

    def __abs__(self) -> Tensor:
        return self._call("abs")

    def __invert__(self) -> Tensor:
        return self._call("bitwise_not")

    def __rsub__(self, other: Any) -> Tensor:
        return self._call("rsub", other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return self._call("reciprocal") * other

    def __rpow__(self, other: Any) -> Tensor:
        return context.current().invoke("aten.pow", None, (other, self), {})

    def __rfloordiv__(self, other: Any) -> Tensor:
        return context.current().invoke("aten.floor_divide", None, (other, self), {})

    def __rmod__(self, other: Any) -> Tensor:
        return context.current().invoke("aten.remainder", None, (other, self), {})

    def __rmatmul__(self, other: Any) -> Tensor:
        return context.current().invoke("aten.matmul", None, (other, self), {})

    if TYPE_CHECKING:

        def __add__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __floordiv__(self, other: Any) -> Tensor: ...
        def __mod__(self, other: Any) -> Tensor: ...
        def __pow__(self, other: Any) -> Tensor: ...
        def __matmul__(self, other: Any) -> Tensor: ...
        def __lt__(self, other: Any) -> Tensor: ...
        def __gt__(self, other: Any) -> Tensor: ...
        def __and__(self, other: Any) -> Tensor: ...


_OPERATORS = {
    "__add__": "add", "__radd__": "add", "__sub__": "sub", "__mul__": "mul", "__rmul__": "mul", "__truediv__": "div",
    "__floordiv__": "floor_divide", "__mod__": "remainder", "__pow__": "pow", "__matmul__": "matmul",
    "__and__": "bitwise_and", "__rand__": "bitwise_and", "__or__": "bitwise_or", "__ror__": "bitwise_or",
    "__xor__": "bitwise_xor", "__rxor__": "bitwise_xor", "__lshift__": "bitwise_left_shift",
    "__rshift__": "bitwise_right_shift",
    **{f"__{name}__": name for name in OPERATORS},
    "__iadd__": "add_", "__isub__": "sub_", "__imul__": "mul_", "__itruediv__": "div_", "__ipow__": "pow_",
    "__ifloordiv__": "floor_divide_", "__imod__": "remainder_", "__iand__": "bitwise_and_", "__ior__": "bitwise_or_",
    "__ixor__": "bitwise_xor_", "__ilshift__": "bitwise_left_shift_", "__irshift__": "bitwise_right_shift_",
}  # fmt: skip
"""Python's operators to ATen's."""


def _operator(name: str, base: str) -> Any:
    def apply(self: Tensor, other: Any) -> Any:
        if other is None or isinstance(other, (str, dict)):
            return NotImplemented
        return self._call(base, other)

    return named(name, apply)


for _name, _base in _OPERATORS.items():
    setattr(Tensor, _name, _operator(_name, _base))


# --- Tensors whose contents are here ---


class StoredTensor(Tensor):
    """A tensor whose contents are a numpy array: a weight. It enters a program where it is first used."""

    def __init__(self, data: Any) -> None:
        self._data = np.asarray(data.data if isinstance(data, StoredTensor) else data)

    @property
    def data(self) -> np.ndarray[Any, Any]:
        """The contents."""
        return self._data

    @data.setter
    def data(self, value: Any) -> None:
        self._data = np.asarray(value)

    @property
    def ssa(self) -> SSAValue:
        return context.current().stored(self)

    def rebind(self, ssa: SSAValue) -> None:
        raise TypeError("a weight keeps its shape: change the shape of a copy, `w.clone()`, or of a view, `w[:]`")

    @property
    def meta(self) -> Meta:
        from flambeau.infer.rules import Meta
        from flambeau.ir.arrays import dtype_of

        dtype = dtype_of(self._data)
        if dtype is None:
            raise TypeError(f"{self._data.dtype} is not an element type of programs")
        return Meta(self._data.shape, dtype)

    @property
    def shape(self) -> Size:
        return Size(self._data.shape)

    @property
    def ndim(self) -> int:
        return self._data.ndim

    def numpy(self) -> np.ndarray[Any, Any]:
        return self._data

    def __len__(self) -> int:
        return len(self._data)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self._data if dtype is None else self._data.astype(dtype)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._data!r})"


class TypedValue(Value):
    """A value of a type that Python has no wrapper of its own for: a list, None, a string. `typed` makes subclasses."""

    schema_type: ClassVar[SchemaType]


# --- Literals ---


def is_dtype(value: Any) -> bool:
    """Tell whether a value names an element type: ours, numpy's, Python's, or a string (`f32`, `float32`)."""
    return as_dtype(value) is not None


def as_dtype(value: Any) -> DType | None:
    """Return the element type that a value names; None if it names none."""
    from flambeau.ir import dtypes

    if isinstance(value, dtypes.DType):
        return value
    if isinstance(value, str):
        return dtypes.from_name(value)
    if value in (float, int, bool, complex):
        return {float: default_dtype(), int: dtypes.int64, bool: dtypes.bool_, complex: dtypes.complex64}[value]
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        named = np.dtype(value)
        return dtypes.from_numpy(named) or dtypes.BY_NAME.get(named.name)
    return None


def default_dtype() -> DType:
    """Return the dtype of new floats."""
    from flambeau.ir import dtypes

    found = dtypes.from_name(context.default_dtype_name())
    assert found is not None
    return found


def is_literal(value: Any) -> bool:
    """Tell whether a value is a number, an array, or nested lists of such."""
    if isinstance(value, (list, tuple)):
        return all(map(is_literal, value))
    return isinstance(value, (bool, int, float, complex, np.generic, np.ndarray))


def as_array(value: Any, dtype: DType | None = None) -> np.ndarray[Any, Any]:
    """Convert a literal to an array; Python floats get the default dtype."""
    from flambeau.ir.arrays import numpy_dtype

    array = np.asarray(value)
    if dtype is None and array.dtype == np.float64 and not isinstance(value, (np.ndarray, np.generic)):
        dtype = default_dtype()
    return array if dtype is None else array.astype(numpy_dtype(dtype))
