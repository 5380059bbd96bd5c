"""The example in docs/how-to-add-an-encoder.md, executed and held to the laws."""

import inspect
import re
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest
import torch

from kalmanac._encoders.registry import ENCODERS
from tests.encoders import test_laws, test_modules
from tests.encoders.cases import Case

PAGE = Path(__file__).parents[2] / "docs" / "how-to-add-an-encoder.md"
NAME = "moving-average"
CHOICES = {
    "dtype": [torch.float32, torch.float64],
    "resumed": [False, True],
    "with_resets": [False, True],
}
LAWS = [
    law
    for module in (test_laws, test_modules)
    for name, law in inspect.getmembers(module, inspect.isfunction)
    if name.startswith("test_")
    and "case" in inspect.signature(law).parameters
    and set(inspect.signature(law).parameters) <= {"case", *CHOICES}
]


@pytest.fixture(scope="module")
def example() -> Iterator[Case]:
    """The page's code blocks, run in order; they add a row to the table."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(blocks) == 2
    kept = dict(ENCODERS)
    names: dict[str, object] = {}
    try:
        for block in blocks:
            exec(compile(block, PAGE.name, "exec"), names)
        yield Case(NAME)
    finally:
        ENCODERS.clear()
        ENCODERS.update(kept)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_the_example_obeys(example: Case, law: Callable[..., None]) -> None:
    asked = [name for name in inspect.signature(law).parameters if name != "case"]
    for values in product(*(CHOICES[name] for name in asked)):
        law(example, **dict(zip(asked, values, strict=True)))


def test_there_are_laws_to_obey() -> None:
    assert LAWS
