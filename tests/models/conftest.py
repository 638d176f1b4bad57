"""Lets the tests here share their cases: `case` runs a test for every model, `image_case` for those of images."""

import pytest
from torch import nn

from support.model_cases import CASES, IMAGE_CASES, POOLED_CASES, Case, built


@pytest.fixture
def body(case: Case) -> nn.Module:
    """The case's model, shared between tests: read it, and pass tensors in to change them."""
    return built(case).train()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`pooled_case` are the models of images that take any size once they are built."""
    for argument, cases in (("case", CASES), ("image_case", IMAGE_CASES), ("pooled_case", POOLED_CASES)):
        if argument in metafunc.fixturenames:
            metafunc.parametrize(argument, cases, ids=[case.name for case in cases])
