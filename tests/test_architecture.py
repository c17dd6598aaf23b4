"""The shape of the code base: who imports whom, what an import costs, which names are public."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import flambeau

ROOT = Path(flambeau.__file__).parent
ORDER = ("ir", "dialects", "infer", "frontends", "passes", "lowering", "engines", "testing", "explorer")
"""A folder imports from itself and from those before it."""
BASE = ("diagnostics", "python_files")
"""Root modules below the folders: of these they import from `ir` only, and every folder may import them."""
ON_TOP = ("testing", "explorer")
"""Folders that use the package as its users do, and so may import its public API."""
TORCH_FREE = ("ir", "dialects", "infer", "passes", "lowering", "frontends.nn")
MAX_LINES, MAX_FUNCTION, MAX_CLASSES = 500, 60, 4


@cache
def files() -> list[Path]:
    return sorted(p for p in ROOT.rglob("*.py") if "__pycache__" not in p.parts)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module: str) -> str:
    """Return the folder or root module that a module belongs to: `lowering` of `flambeau.lowering.linalg.view`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


@cache
def imports_of(path: Path) -> list[tuple[int, str]]:
    """Every module of ours that a file imports, at the top or within a function, but not for types only."""
    for_types = {
        id(inner)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree(path)):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            names = [node.module or ""]
            if node.module == "flambeau":
                names = [f"flambeau.{alias.name}" for alias in node.names]
        else:
            continue
        found += [(node.lineno, name) for name in names if name.split(".")[0] == "flambeau"]
    return found


def test_folders_import_from_those_before_them() -> None:
    wrong = []
    for path in files():
        part = part_of(module_name(path))
        if part not in ORDER and part not in BASE:
            continue
        allowed = {"ir", *BASE} if part in BASE else {*ORDER[: ORDER.index(part) + 1], *BASE}
        if part in ON_TOP:
            allowed |= {"", "api"}
        wrong += [
            f"{path.relative_to(ROOT)}:{line} imports {name}"
            for line, name in imports_of(path)
            if part_of(name) not in allowed
        ]
    assert not wrong, "\n".join(wrong)


def test_every_folder_has_its_place_in_the_order() -> None:
    folders = {p.parent.name for p in ROOT.glob("*/__init__.py")}
    assert folders - {"commands", "distributed"} <= set(ORDER)  # which are on top, beside api.py


def test_only_the_command_line_imports_the_command_line() -> None:
    for path in files():
        if part_of(module_name(path)) not in ("commands", "cli", "__main__"):
            assert not [name for _, name in imports_of(path) if part_of(name) in ("commands", "cli")], path


def python(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(ROOT.parent)}, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_import_flambeau_imports_neither_torch_nor_xdsl() -> None:
    code = "import sys, json, flambeau; print(json.dumps(sorted(m.split('.')[0] for m in sys.modules)))"
    loaded = set(json.loads(python(code)))
    assert not loaded & {"torch", "xdsl", "numpy", "iree", "click", "transformers"}


def test_import_flambeau_is_fast() -> None:
    """In seconds of CPU time, so that it does not matter what else the machine does."""
    timed = "import time; start = time.process_time(); import flambeau; print(time.process_time() - start)"
    assert min(float(python(timed)) for _ in range(5)) < 0.150


def test_the_compiler_needs_no_torch() -> None:
    """S36: In an interpreter where `import torch` raises, everything behind the frontends can be imported."""
    names = [
        name
        for path in files()
        if any((name := module_name(path)).startswith(f"flambeau.{folder}") for folder in TORCH_FREE)
    ]
    assert len(names) > 40
    code = f"""
import sys, importlib
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers"):
            raise ImportError(f"{{name}} is not here")
sys.meta_path.insert(0, Refuse())
for name in {names!r}:
    importlib.import_module(name)
import flambeau
flambeau.compile, flambeau.load, flambeau.Module, flambeau.CompileError, flambeau.fx
assert "torch" not in sys.modules
"""
    python(code)


def test_mlir_text_is_lowered_without_torch() -> None:
    code = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError(f"{name} is not here")
sys.meta_path.insert(0, Refuse())
from flambeau.dialects.context import parse_module
from flambeau.opt import run_pipeline
module = parse_module('''
func.func @main(%x: !torch.vtensor<[2,?],f32>) -> !torch.vtensor<[2,?],f32> {
  %0 = torch.aten.relu %x : !torch.vtensor<[2,?],f32> -> !torch.vtensor<[2,?],f32>
  return %0 : !torch.vtensor<[2,?],f32>
}
''', "x.mlir")
names = "torch-function-to-torch-backend-pipeline,torch-backend-to-linalg-on-tensors-backend-pipeline"
print([op.name for op in run_pipeline(module, names).walk()])
"""
    assert "linalg.generic" in python(code)


PUBLIC = [
    "CompileError", "Diagnostic", "Module", "OutputType", "compile", "decompose", "export_train_step", "fx", "load",
    "lower", "module_context", "nn", "ops", "register_dialect", "set_default_dtype", "torchscript", "trace",
]  # fmt: skip


def test_public_names() -> None:
    """These names are a contract: other people's scripts call them."""
    assert sorted(flambeau.__all__) == PUBLIC
    for name in PUBLIC:
        assert getattr(flambeau, name) is not None
        assert name in dir(flambeau)
    assert sorted(flambeau.fx.__all__) == ["OutputType", "export_and_import", "stateless_fx_import"]
    assert [str(o) for o in flambeau.OutputType] == ["raw", "torch", "linalg-on-tensors", "stablehlo", "tosa"]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        flambeau.nothing  # noqa: B018


def test_no_file_is_long() -> None:
    long = {str(p.relative_to(ROOT)): n for p in files() if (n := len(p.read_text().splitlines())) > MAX_LINES}
    assert not long


def test_no_function_is_long() -> None:
    long = {
        f"{p.relative_to(ROOT)}: {node.name}": lines
        for p in files()
        for node in ast.walk(tree(p))
        if isinstance(node, ast.FunctionDef) and (lines := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION
    }
    assert not long


def test_no_chain_of_classes_is_deep() -> None:
    """A class, and those of ours that it inherits from, one above the other."""
    bases: dict[str, set[str]] = {}
    for path in files():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                heads = [b.value if isinstance(b, ast.Subscript) else b for b in node.bases]
                names = {b.id if isinstance(b, ast.Name) else getattr(b, "attr", "") for b in heads}
                bases.setdefault(node.name, set()).update(names - {node.name})

    def depth(name: str) -> int:
        return 1 + max(map(depth, bases[name] & bases.keys()), default=0)

    assert {name: depth(name) for name in bases if depth(name) > MAX_CLASSES} == {}


def test_no_file_is_a_drawer() -> None:
    """Names say what is inside."""
    names = {p.stem for p in files()}
    assert not names & {"utils", "util", "helpers", "misc", "common_utils", "manager"}


def test_the_importer_of_torchscript_is_small() -> None:
    """S80: functions, values, objects and their types, in less than a thousand lines."""
    files = ("importer", "objects", "types", "locations", "state", "compile")
    lines = [(ROOT / "frontends" / "script" / f"{name}.py").read_text().count("\n") for name in files]
    assert sum(lines) < 1000


def test_the_importer_of_fx_reads_no_types_as_text() -> None:
    """S83: it is Python on PyTorch's own objects, without a regular expression."""
    for name in ("importer", "types", "operands", "schemas", "exported", "layouts"):
        path = ROOT / "frontends" / "fx" / f"{name}.py"
        names = {a.name for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Import) for a in n.names}
        assert "re" not in names, path.name
