"""How programs are tested: the model zoo, the end-to-end suites and the compatibility test suite."""
