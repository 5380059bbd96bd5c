"""Execute the notebook of examples/ and keep what comes: `python -m tests.docs.record_notebook`."""

import tempfile
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[2] / "examples" / "noisy_sensor.ipynb"


def executed(folder: Path) -> Any:
    """The notebook with its outputs; the files that it writes lie in `folder`."""
    import nbclient
    import nbformat

    book = nbformat.read(NOTEBOOK, 4)
    where = {"metadata": {"path": str(folder)}}
    client = nbclient.NotebookClient(
        book, timeout=None, resources=where, record_timing=False, coalesce_streams=True
    )
    client.execute()
    book.metadata["language_info"] = {"name": "python"}  # the rest depends on the machine
    return book


if __name__ == "__main__":
    import nbformat

    with tempfile.TemporaryDirectory() as name:
        nbformat.write(executed(Path(name)), NOTEBOOK)
