"""What the documentation site is made of: mkdocs.yml calls this while it collects files.

The site mirrors the repository. A page lies where its file lies (docs/choices.md; README.md is the
front page), so that a link which works there works on the site. The files that pages link to come
along.
"""

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
    return Files([*(file for file in files if file not in moved), *mirrored])
