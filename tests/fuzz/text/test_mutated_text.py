"""Mutated MLIR text: a module or one error with a place, soon. `python -m fuzz.text` runs many more."""

from __future__ import annotations

import pytest
from fuzz.text.check import check_text, mutated
from fuzz.text.corpus import Text, corpus

SAMPLE = 200


@pytest.fixture(scope="module")
def texts() -> tuple[Text, ...]:
    return corpus(exported=2, scripted=2)


def test_what_we_print_is_read_again(texts: tuple[Text, ...]) -> None:
    outcomes = [(t, check_text(t.text)) for t in texts]
    assert [(o, t.text) for t, o in outcomes if o.status != "same"] == []


def test_mutated_text_gives_a_module_or_an_error_with_a_place(texts: tuple[Text, ...]) -> None:
    for seed in range(SAMPLE):
        outcome = check_text(mutated(seed, texts), seed)
        # Something is imported or the machine is busy: the campaign, which is warm, watches the time.
        assert outcome.status in ("same", "refused", "hung"), f"seed {seed}: {outcome.reason}\n{mutated(seed, texts)}"
