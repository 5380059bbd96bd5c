"""What the documentation site is made of: mkdocs.yml calls this while it collects files.

The site mirrors the repository. A page lies where its file lies (docs/choices.md; README.md is the
front page), so that a link which works there works on the site. The files that pages link to come
along. A notebook becomes a page beside it, with its outputs.
"""

import base64
import json
import re
from pathlib import Path

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
BESIDE = (  # what pages link to outside docs/
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "examples/**/*",
    "results/**/*",
    "scripts/pretrained.py",
    "src/kalmanac/pretrained/README.md",
)


def on_files(files, config):
    """The theme's files as they are; all others at their place in the repository."""
    docs = Path(config.docs_dir)
    moved = [file for file in files if file.src_dir and Path(file.src_dir) == docs]
    sources = [docs / file.src_uri for file in moved]
    sources += [path for pattern in BESIDE for path in ROOT.glob(pattern) if path.is_file()]
    places = [path.relative_to(ROOT).as_posix() for path in sources]
    mirrored = [
        File.generated(config, place, abs_src_path=str(path))
        for place, path in zip(places, sources, strict=True)
    ]
    pages = [file for path in ROOT.glob("examples/*.ipynb") for file in notebook(path, config)]
    return Files([*(file for file in files if file not in moved), *mirrored, *pages])


def on_page_markdown(markdown, **_):
    """Links to notebooks lead to their pages."""
    return re.sub(r"(examples/\w+)\.ipynb\)", r"\1.md)", markdown)


def notebook(path, config):
    """Cells and printed words as Markdown; pictures as files of their own."""
    place, lines, pictures = path.relative_to(ROOT).with_suffix(""), [], []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        lines += [source] if cell["cell_type"] == "markdown" else ["```python", source, "```"]
        for output in cell.get("outputs", []):
            if "text" in output:
                lines += ["```text", "".join(output["text"]).rstrip(), "```"]
            elif "image/png" in output["data"]:
                name = f"{place.name}-{len(pictures) + 1}.png"
                picture = base64.b64decode("".join(output["data"]["image/png"]))
                uri = place.with_name(name).as_posix()
                pictures.append(File.generated(config, uri, content=picture))
                lines += [f"![what the cell above draws]({name})"]
        lines += [""]
    page = File.generated(config, f"{place.as_posix()}.md", content="\n".join(lines))
    return [page, *pictures]
