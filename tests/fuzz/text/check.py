"""What may become of a text: a module, or one error of ours that says where; within a second, and never a traceback."""

from __future__ import annotations

import os
import tempfile
import time
from functools import cache
from pathlib import Path
from random import Random

from fuzz.campaign import Outcome
from fuzz.text.corpus import LEVELS, Text, corpus
from fuzz.text.mutate import mutate

import flambeau
from flambeau.api import OutputType
from flambeau.files import read_module
from flambeau.ir.verifying import verify
from flambeau.opt import PASSES, run_pipeline

SECONDS = 1.0
"""The CPU time that a text may take."""


@cache
def _file() -> Path:
    descriptor, name = tempfile.mkstemp(".mlir", "flambeau-fuzz-")
    os.close(descriptor)
    return Path(name)


def mutated(seed: int, texts: tuple[Text, ...]) -> str:
    """Mutate the text that a seed stands for; half are of the torch dialect, which goes on to passes and lowerings."""
    r = Random(seed)
    level = r.choice(["raw", "raw", "torch", *LEVELS[2:]])
    text = r.choice([t for t in texts if t.level == level])
    other = r.choice([t for t in texts if t.level == text.level])
    return mutate(r, text.text, other.text)


def process(r: Random, path: Path) -> str:
    """Read a file and take it as far as it goes; gives the name of what was done."""
    module = read_module(path)
    if module.output_type is OutputType.RAW:
        if r.random() < 0.4:
            done = r.choice(sorted(PASSES))
            op = run_pipeline(module.op, done)
            module = flambeau.Module(op, module.weights, module.signatures, module.output_type)
        else:
            done = r.choice(LEVELS[1:])
            module = flambeau.compile(module, output_type=done)
            try:
                verify(module.op)
            except flambeau.CompileError as e:
                raise AssertionError(f"what {done} gives is not valid: {e}") from e
    else:
        done = "read"
    _ = str(module), module.text(generic=True)
    return done


def check_text(text: str, seed: int = 0) -> Outcome:
    """Read a text and take it as far as it goes."""
    path = _file()
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    start = time.process_time()
    try:
        done = process(Random(seed), path)
        outcome = Outcome("same", done)
    except flambeau.CompileError as e:
        outcome = _judged(e, str(path))
    except Exception as e:
        frame = e.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        where = f"{Path(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno}" if frame is not None else ""
        outcome = Outcome("failed", "traceback", f"{type(e).__name__} at {where}: {e}")
    taken = time.process_time() - start
    if taken > SECONDS and outcome.status != "failed":
        return Outcome("hung", outcome.stage, f"{taken:.1f} s: {outcome.reason}")
    return outcome


def _judged(error: flambeau.CompileError, path: str) -> Outcome:
    text = str(error)
    first = error.diagnostics[0]
    reason = f"{first.op}: {first.reason}"
    if any("internal error" in d.reason for d in error.diagnostics):
        return Outcome("failed", "internal error", text)
    if any(d.line is None for d in error.diagnostics):
        return Outcome("failed", "no place", text)
    if len(text) > 50_000:
        return Outcome("failed", "long message", f"{len(text)} characters: {text[:500]}")
    return Outcome("refused", first.stage, reason[:200])


def check_seed(seed: int) -> Outcome:
    """Mutate a text and read it; what took long is tried again, as other processes may have been in the way."""
    text = mutated(seed, warm())
    outcome = check_text(text, seed)
    return check_text(text, seed) if outcome.status == "hung" else outcome


@cache
def warm() -> tuple[Text, ...]:
    """Load the texts and read each once, so that nothing is imported while the clock runs."""
    texts = corpus()
    for text in texts:
        check_text(text.text)
    for level in LEVELS[1:]:
        for text in texts:
            if text.level == "raw":
                path = _file()
                path.write_text(text.text)
                try:
                    flambeau.compile(read_module(path), output_type=level)
                except flambeau.CompileError:
                    continue
    return texts


def describe(seed: int) -> str:
    """Return the two ends of a seed's text, for reports."""
    text = mutated(seed, corpus())
    return text if len(text) < 3000 else text[:1500] + "\n[...]\n" + text[-1500:]
