"""The context that knows every dialect we use, and reading MLIR text as other MLIRs print it."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property, partial
from importlib import import_module
from typing import Any

from xdsl.context import Context
from xdsl.dialect_interfaces.op_asm import OpAsmDialectInterface
from xdsl.dialects.builtin import (
    AnyFloat,
    ArrayAttr,
    CallSiteLoc,
    ComplexType,
    FileLineColLoc,
    FusedLoc,
    IntAttr,
    LocationAttr,
    ModuleOp,
    NameLoc,
    NoneAttr,
    StringAttr,
    UnknownLoc,
)
from xdsl.ir import Dialect, Operation
from xdsl.ir.affine import AffineBinaryOpExpr, AffineBinaryOpKind, AffineExpr, AffineMap
from xdsl.parser import AttrParser, Parser, UnresolvedOperand
from xdsl.parser.affine_parser import AffineParser
from xdsl.parser.generic_parser import ParserState
from xdsl.utils.exceptions import ParseError, VerifyException
from xdsl.utils.lexer import Input, Span
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRTokenKind

from flambeau.ir.plugins import added_dialects

DIALECTS = {
    "func": "xdsl.dialects.func:Func",
    "math": "xdsl.dialects.math:Math",
    "complex": "xdsl.dialects.complex:Complex",
    "tensor": "xdsl.dialects.tensor:Tensor",
    "scf": "xdsl.dialects.scf:Scf",
    "cf": "xdsl.dialects.cf:Cf",
    "ml_program": "flambeau.dialects.ml_program:MLProgram",
    "stablehlo": "flambeau.dialects.stablehlo:Stablehlo",
    "chlo": "flambeau.dialects.stablehlo:Chlo",
    "tosa": "flambeau.dialects.tosa:Tosa",
    "sdy": "flambeau.dialects.sdy:Sdy",
    "tm_tensor": "flambeau.dialects.tm_tensor:TmTensor",
    "torch": "flambeau.dialects.torch.ops:Torch",
    "torch_c": "flambeau.dialects.torch_c:TorchC",
}
"""Dialects and where they are; one is imported when a program first uses it."""
NAMES = frozenset({*DIALECTS, "arith", "builtin", "linalg"})
"""The names of all dialects that are ours, or that we have made from xDSL's."""


def load_dialect(path: str) -> Dialect:
    """Import the dialect at `module:name`."""
    module, name = path.split(":")
    found: Dialect = getattr(import_module(module), name)
    return found


def _builtin() -> Dialect:
    from xdsl.dialects.builtin import Builtin

    # xDSL keeps the blobs of all programs in the one builtin dialect of the process: a second program that uses the
    # same key loses its blob. So every context has a builtin dialect of its own.
    return Dialect("builtin", [*Builtin.operations, OldFuncOp], [*Builtin.attributes], [_Blobs()])


class _Blobs(OpAsmDialectInterface):
    """The contents of `dense_resource`s as they are read: an alignment of four bytes, then the data."""

    def parse_resource(self, key: str, val: str) -> None:
        super().parse_resource(key, val)
        if len(bytes.fromhex(val[2:])) < 4:
            raise ValueError(f"the contents of {key} are less than the four bytes that tell their alignment")


def _arith() -> Dialect:
    from xdsl.dialects.arith import Arith

    from flambeau.dialects.builtin_ext import RemFOp

    return Dialect("arith", [*Arith.operations, RemFOp], [*Arith.attributes])


def _linalg() -> Dialect:
    from xdsl.dialects.linalg import Linalg

    from flambeau.dialects.linalg_named import NAMES, named_op

    ours = [named_op(name) for name in NAMES]
    taken = {op.name for op in ours}
    return Dialect("linalg", [*(op for op in Linalg.operations if op.name not in taken), *ours], [*Linalg.attributes])


def _itself(dialect: Dialect) -> Dialect:
    return dialect


def make_context() -> Context:
    """Make a context with every dialect that we use; none of ours is imported before a program needs it."""
    context = Context()
    for dialect in added_dialects():
        context.register_dialect(dialect.name, partial(_itself, dialect))
    for name, path in DIALECTS.items():
        context.register_dialect(name, partial(load_dialect, path))
    context.register_dialect("arith", _arith)
    context.register_dialect("linalg", _linalg)
    context.load_dialect(_builtin())
    return context


def parse_module(text: str, name: str = "<string>", context: Context | None = None) -> ModuleOp:
    """Read a module as MLIR prints it; `name` is the file's name in error messages.

    The contents of `dense_resource`s stay in the context: pass one and ask it with `blobs`.
    """
    return MlirParser(context or make_context(), text, name).parse_module()


def blobs(context: Context) -> dict[str, bytes]:
    """Return the contents of the `dense_resource`s that were read with this context, by key."""
    interface = context.get_dialect("builtin").get_interface(OpAsmDialectInterface)
    assert interface is not None
    # The first four bytes say how the rest is to be aligned.
    return {key: bytes.fromhex(text[2:])[4:] for key, text in interface._blob_storage.items() if text}


class OldFuncOp(Operation):
    """`func @f`, as functions were written until 2022; reading it gives today's `func.func`."""

    name = "func"

    @classmethod
    def dialect_name(cls) -> str:
        return "func"

    @classmethod
    def parse(cls, parser: Parser) -> Any:
        from xdsl.dialects.func import FuncOp

        return FuncOp.parse(parser)


class _Element(AttrParser._TensorLiteralElement):
    """An element of `dense<...>` where hexadecimal digits are the bits of a float."""

    def to_type(self, parser: AttrParser, type: Any) -> Any:
        if isinstance(type, AnyFloat):
            return _decode(self.value, self.span.text, type)
        if isinstance(type, ComplexType) and isinstance(type.element_type, AnyFloat) and isinstance(self.value, tuple):
            parts = self.span.text.strip("()").split(",")
            return tuple(_decode(v, t.strip(), type.element_type) for v, t in zip(self.value, parts, strict=True))
        return super().to_type(parser, type)


def _decode(value: Any, text: str, type_: Any) -> float:
    if text[:2] in ("0x", "0X"):
        return float(next(type_.iter_unpack(int(value).to_bytes(type_.compile_time_size, "little"))))
    return float(value)


class _SemiAffineParser(AffineParser):
    """Products and quotients of symbols, as they occur in symbolic shapes."""

    def _create_binop_expr(self, lhs: AffineExpr, rhs: AffineExpr, binop: Any) -> AffineExpr:
        try:
            return super()._create_binop_expr(lhs, rhs, binop)
        except NotImplementedError:
            return AffineBinaryOpExpr(_KINDS[binop.text], lhs, rhs)


_KINDS = {
    "*": AffineBinaryOpKind.Mul,
    "mod": AffineBinaryOpKind.Mod,
    "floordiv": AffineBinaryOpKind.FloorDiv,
    "ceildiv": AffineBinaryOpKind.CeilDiv,
}


class MlirLexer(MLIRLexer):
    """xDSL's lexer, which reads a string in linear time."""

    # xDSL nests two quantifiers here, so that a string without an end takes time exponential in its length.
    _unescaped_characters_regex = re.compile(r'"[^"\\\n\v\f]*+(?:\\(?:["nt\\]|[0-9A-Fa-f]{2})[^"\\\n\v\f]*+)*+"')


class MlirParser(Parser):
    """xDSL's parser, with what real MLIR text has besides: bits of floats, products of symbols, aliases at the end, ...

    Every op knows its place in the text, unless the text gives it another. Whatever is wrong with the text is a
    ParseError. All use of xDSL's private names for parsing is in this class.
    """

    def __init__(self, ctx: Context, input: str, name: str = "<unknown>") -> None:
        super().__init__(ctx, "", name)
        self._parser_state = ParserState(MlirLexer(Input(input, name)))
        self._uses: dict[str, Span[str]] = {}
        """Where values are used first that are not defined yet."""

    def parse_module(self, allow_implicit_module: bool = True) -> ModuleOp:
        try:
            module = super().parse_module(allow_implicit_module)
            self._resolve_locations(module)
            if any(op.name == "torch.global_slot" for op in module.ops):
                from flambeau.dialects.torch.global_slots import gather_slot_initializers

                gather_slot_initializers(module)
        except ParseError as e:
            unknown = next((name for name in self.forward_ssa_references if name in self._uses), None)
            if unknown is not None and self._current_token.kind == MLIRTokenKind.EOF:
                # xDSL tells at the end of the text, where nobody would look.
                raise ParseError(self._uses[unknown], f"%{unknown} is not defined") from e
            raise
        except VerifyException as e:
            raise self._error_here(str(e)) from e
        except RecursionError as e:
            raise self._error_here("this is nested too deeply to be read") from e
        except Exception as e:
            # xDSL's parser takes some things for granted that a text may get wrong.
            raise self._error_here(f"this cannot be read: {type(e).__name__}: {e}") from e
        if isinstance(module.location, UnknownLoc):
            module.location = self._place(0)
        return module

    def resolve_operand(self, operand: UnresolvedOperand, type: Any) -> Any:
        if operand.operand_name not in self.ssa_values:
            self._uses.setdefault(operand.operand_name, operand.span)
        return super().resolve_operand(operand, type)

    def _error_here(self, message: str) -> ParseError:
        return ParseError(self._current_token.span, message)

    # --- The places of ops ---

    @cached_property
    def _lines(self) -> list[int]:
        """Where the lines of the text begin."""
        return [0, *(match.end() for match in re.finditer("\n", self.lexer.input.content))]

    @cached_property
    def _file(self) -> StringAttr:
        return StringAttr(self.lexer.input.name)

    def _place(self, position: int) -> FileLineColLoc:
        line = bisect_right(self._lines, position)
        return FileLineColLoc(self._file, IntAttr(line), IntAttr(position - self._lines[line - 1] + 1))

    def parse_operation(self) -> Operation:
        start = self._current_token.span.start
        op = super().parse_operation()
        if isinstance(op.location, UnknownLoc):
            op.location = self._place(start)
        if op.regions:
            # A short form may stand for ops that are not written.
            for inner in op.walk():
                if isinstance(inner.location, UnknownLoc):
                    inner.location = op.location
        return op

    def _get_op_by_name(self, name: str) -> type[Operation]:
        found = self.ctx.get_optional_op(name, dialect_stack=self._parser_state.dialect_stack)
        if found is None:
            # The name has been read: the error is there, not at the next token.
            start = self.lexer.input.content.rfind(name, 0, self.pos)
            self.raise_error(f"Operation {name} is not registered", start, start + len(name))
        return found

    # --- dense<0x7F800000> ---

    def _parse_tensor_literal_element(self) -> _Element:
        element = super()._parse_tensor_literal_element()
        return _Element(element.is_negative, element.value, element.span)

    def _parse_optional_complex(self) -> Any:
        # `(0x7F800000, 1.0)` has an integer and a float token, which xDSL takes for a mistake.
        if self._current_token.kind != MLIRTokenKind.L_PAREN:
            return None
        start = self._consume_token(MLIRTokenKind.L_PAREN).span
        real, _ = self._parse_bool_int_or_float()
        self.parse_punctuation(",")
        imaginary, _ = self._parse_bool_int_or_float()
        end = self._consume_token(MLIRTokenKind.R_PAREN).span
        return (real, imaginary), type(start)(start.start, end.end, start.input)

    # --- linalg.generic ... -> (tensor<4xf32>, tensor<4xi64>) ---

    def parse_comma_separated_list(self, delimiter: Any, parse: Any, context_msg: str = "") -> Any:
        # xDSL's linalg reads the types of several results without their parentheses. Nothing else in a linalg op that
        # is a bare list can start with one.
        if (
            delimiter is self.Delimiter.NONE
            and self._current_token.kind == MLIRTokenKind.L_PAREN
            and self._parser_state.dialect_stack[-1] == "linalg"
        ):
            delimiter = self.Delimiter.PAREN
        return super().parse_comma_separated_list(delimiter, parse, context_msg)

    # --- tensor<99999999999999999999xf32> ---

    def parse_shape_dimension(self, allow_dynamic: bool = True) -> int:
        span = self._current_token.span
        size = super().parse_shape_dimension(allow_dynamic)
        if size >> 63 > 0:
            self.raise_error("a size has at most 63 bits", span.start, span.end)
        return size

    # --- affine_map<()[s0, s1] -> (s0 * s1)> ---

    def parse_affine_map(self) -> AffineMap:
        return _SemiAffineParser(self._parser_state).parse_affine_map()

    # --- dense_resource<"any key"> ---

    def _parse_dialect_resource_handle(self, dialect_name: str, interface: OpAsmDialectInterface) -> str:
        key = self.parse_optional_str_literal()
        if key is None:
            return super()._parse_dialect_resource_handle(dialect_name, interface)
        if (dialect_name, key) not in self.dialect_resources:
            key = interface.declare_resource(key)
            self.dialect_resources.add((dialect_name, key))
        return key

    # --- loc(#loc7), with `#loc7 = loc(...)` at the end ---

    def _parse_location(self) -> LocationAttr:
        token = self._current_token
        if token.kind == MLIRTokenKind.HASH_IDENT and token.text not in self.attribute_aliases:
            self._consume_token(MLIRTokenKind.HASH_IDENT)
            return NameLoc(StringAttr(token.text), NoneAttr())
        return super()._parse_location()

    def _resolve_locations(self, module: ModuleOp) -> None:
        if not any(isinstance(value, LocationAttr) for value in self.attribute_aliases.values()):
            return
        for op in module.walk():
            op.location = self._resolved(op.location)
            for region in op.regions:
                for block in region.blocks:
                    for argument in block.args:
                        argument.location = self._resolved(argument.location)

    def _resolved(self, location: Any) -> Any:
        match location:
            case NameLoc() if location.desc.data.startswith("#"):
                found = self.attribute_aliases.get(location.desc.data)
                if found is None:
                    self.raise_error(f"undefined location alias {location.desc.data}")
                return self._resolved(found)
            case NameLoc():
                return NameLoc(location.desc, self._resolved(location.location))
            case CallSiteLoc():
                return CallSiteLoc(self._resolved(location.callee), self._resolved(location.caller))
            case FusedLoc(locations=ArrayAttr(data=parts)):
                return FusedLoc(ArrayAttr([self._resolved(part) for part in parts]), location.metadata)
            case _:
                return location
