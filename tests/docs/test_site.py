"""The site builds without a warning, every page has its place in it, and it asks no other host."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("material", "mkdocstrings")),
    reason='no mkdocs here: make docs, or pip install "kalmanac[docs]"',
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return folder


def pages(site):
    return [file for file in site.rglob("*.html") if file.name != "404.html"]


def test_every_page_is_there_and_in_the_navigation(site):
    front = (site / "index.html").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        place = f"docs/{page.stem}.html"
        assert (site / place).is_file()
        assert f'href="{place}"' in front, f"{page.name} is not in the nav of mkdocs.yml"


def test_signatures_are_those_that_users_write(site):
    page = re.sub(r"<[^>]+>|\s", "", (site / "docs/api.html").read_text())
    assert "Annotated" not in page
    assert 'RecurrentSAC(encoder:str="vssm+kf",env:' in page


def test_links_to_notebooks_lead_to_their_pages(site):
    assert 'href="examples/noisy_sensor.html"' in (site / "index.html").read_text()
    assert "noisy_sensor.ipynb" not in (site / "index.html").read_text()


def test_what_pages_link_to_comes_along(site):
    for page in pages(site):
        text = page.read_text()
        for link in re.findall(r'(?:href|src)="([^"#?]+)', text):
            if not re.match(r"https?:|data:|mailto:", link):
                target = page.parent / unquote(link)
                assert target.exists(), f"{page.relative_to(site)}: {link}"


def test_it_is_whole_without_the_network(site):
    """Links may lead elsewhere; nothing is loaded from there."""
    for page in pages(site):
        text = page.read_text()
        loaded = re.findall(r'<(?:script|img|iframe)[^>]*\ssrc="(https?:[^"]*)"', text)
        loaded += re.findall(r'<link[^>]*rel="(?:stylesheet|preconnect)"[^>]*href="(https?:[^"]*)"',
                             text)  # fmt: skip
        assert loaded == [], page.relative_to(site)


def test_formulas_need_no_script(site):
    """Neither the site nor every reader of README.md draws TeX: pages have none."""
    for page in ROOT.glob("docs/*.md"):
        assert not re.search(r"^\$\$", page.read_text(), re.M), page.name
    assert not re.search(r"\$[^$\n]+\$", (ROOT / "README.md").read_text())
