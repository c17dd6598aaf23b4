"""IR in, IR out: run passes on text and check what comes out with filecheck."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser as CheckParser
from filecheck.parser import pattern_for_opts

from flambeau.dialects.context import parse_module
from flambeau.ir.printing import pretty_text
from flambeau.opt import run_pipeline


@pytest.fixture
def filecheck() -> Callable[[str, str], None]:
    """`filecheck(pipeline, text)`: the `CHECK` lines in the text must match what the pipeline makes of it."""

    def run(pipeline: str, text: str) -> None:
        module = run_pipeline(parse_module(text), pipeline)
        module.verify()
        output = pretty_text(module)
        options = Options(match_filename="<text>")
        checks = CheckParser(options, io.StringIO(text), *pattern_for_opts(options))
        code = Matcher(options, FInput("<output>", output), checks).run()
        assert code == 0, output

    return run
