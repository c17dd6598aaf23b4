"""Cases for the tests of the runner. Which of them crash, hang or fail is up to `bad_backend.py`."""

import torch

from flambeau.testing import case


@case(torch.arange(4.0), tags={"core"})
def passes(x):
    return x * 2


@case(torch.arange(4.0))
def passes_too(x):
    return x.cumsum(0), {"sum": x.sum()}


@case(torch.randn(3, 3))
def has_no_rule(x):
    return torch.poisson(x.abs())


@case(torch.arange(4.0))
def cannot_be_exported(x):
    return x if x.sum() > 0 else -x


@case(torch.arange(4.0))
def crashes(x):
    return x.exp2()


@case(torch.arange(4.0))
def hangs(x):
    return x.sin()


@case(torch.arange(4.0))
def eats_memory(x):
    return x.cos()


@case(torch.arange(4.0))
def is_refused(x):
    return x.tanh()


@case(torch.arange(5.0))
def is_wrong(x):
    return x * 3
