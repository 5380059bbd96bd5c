"""The notebook of examples/ runs from its first cell to its last, and shows what came of it."""

import ast
import base64
import json
import re

import pytest

from tests.docs.record_notebook import NOTEBOOK, executed

CELLS = json.loads(NOTEBOOK.read_text())["cells"]
CODE = [cell for cell in CELLS if cell["cell_type"] == "code"]
OUTPUTS = [output for cell in CODE for output in cell["outputs"]]


def printed(outputs):
    return "".join(
        "".join(output["text"]) for output in outputs if output["output_type"] == "stream"
    )


def check_what_was_printed(text):
    told = dict(re.findall(r"^(vssm\+kf|memoryless|at best) +(-[\d.]+)", text, re.M))
    found, memoryless, best = (float(told[x]) for x in ("vssm+kf", "memoryless", "at best"))
    assert best * 1.5 < found
    assert memoryless < 1.5 * found
    assert re.search(r"largest difference in 640 steps: \d\.\de-0[6-9]", text)


def test_its_code_is_whole_and_comes_in_by_the_front_door():
    for cell in CODE:
        ast.parse("".join(cell["source"]))
    code = "\n".join("".join(cell["source"]) for cell in CODE)
    assert re.findall(r"^(?:from|import) kalmanac\.", code, re.M) == []
    assert "from kalmanac import" in code


def test_its_outputs_are_those_of_one_run_from_the_top():
    assert [cell["execution_count"] for cell in CODE] == list(range(1, len(CODE) + 1))
    assert {output["output_type"] for output in OUTPUTS} <= {"stream", "display_data"}
    check_what_was_printed(printed(OUTPUTS))
    assert re.findall(r"/(?:home|root|tmp|usr|work)/", NOTEBOOK.read_text()) == []


def test_its_pictures_are_there_and_small():
    pictures = [x["data"]["image/png"] for x in OUTPUTS if "image/png" in x.get("data", {})]
    assert len(pictures) == 2
    assert sum(len(base64.b64decode("".join(x))) for x in pictures) < 150_000


def test_its_links_lead_somewhere():
    text = "\n".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown")
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert links
    assert [link for link in links if not NOTEBOOK.parent.joinpath(link).is_file()] == []


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Jupyter's own
def test_it_runs(tmp_path):
    for name in ("nbclient", "ipykernel", "matplotlib", "onnxruntime", "onnxscript"):
        pytest.importorskip(name)
    cells = [cell for cell in executed(tmp_path).cells if cell.cell_type == "code"]
    check_what_was_printed(printed(output for cell in cells for output in cell.outputs))
    assert (tmp_path / "waterworks.onnx").is_file()
