"""Every row of the page for those who know SB3 is run as it stands there."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "coming-from-sb3.md").read_text()
ERRORS = (TypeError, ValueError, AttributeError, ImportError, OSError)


def section(title):
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(text):
    """The cells of its tables, with the code of each."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if "`" in row[0] or "`" in row[-1]]


def code(cell):
    assert re.fullmatch(r"`[^`]+`", cell), cell
    return cell.strip("`")


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """What the page's blocks define."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("page"))
        found: dict = {}
        for block in re.findall(r"```python\n(.*?)```", PAGE, re.S):
            exec(compile(block, "page", "exec"), found)
        found["model"].save("agent")
        yield found


def run(text, names):
    exec(compile(text, "page", "exec"), names)


@pytest.mark.parametrize("row", rows(section("The same")), ids=lambda row: row[0][:60])
def test_what_is_the_same_runs(row, names):
    run(code(row[0]), names)


@pytest.mark.parametrize(
    "row", rows(section("The same name, another meaning")), ids=lambda row: row[0][:60]
)
def test_what_means_something_else_is_shown(row, names):
    assert "assert " in row[1]
    run(code(row[1]), names)


@pytest.mark.parametrize("row", rows(section("Called otherwise")), ids=lambda row: row[0][:60])
def test_what_is_called_otherwise_is_answered_and_runs_under_our_name(row, names):
    with pytest.raises(ERRORS) as answer:
        run(code(row[0]), names)
    if "got an argument of SB3" in str(answer.value):
        ours = re.findall(r"(\w+)=", row[1]) + re.findall(r"\.(\w+)`$", row[1])
        assert any(name in str(answer.value) for name in ours), answer.value
    run(code(row[1]), names)


@pytest.mark.parametrize("row", rows(section("Missing")), ids=lambda row: row[0][:60])
def test_what_is_missing_is_an_error(row, names):
    with pytest.raises(ERRORS):
        run(code(row[0]), names)


def test_every_row_is_run():
    """No table line but the heads and rules escapes."""
    lines = [line for line in PAGE.splitlines() if re.match(r"\|(?!-)", line)]
    titles = re.findall(r"^## (.*)$", PAGE, re.M)
    found = sum(len(rows(section(title))) for title in titles)
    assert found == len(lines) - 5, "five tables"
