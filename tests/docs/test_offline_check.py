"""The check of the built pages reports external resources, and accepts links and local files."""

from pathlib import Path

import pytest

from tests.docs.offline import loads


@pytest.mark.parametrize(
    "page",
    [
        '<script async src="https://cdn.example/a.js"></script>',
        "<script src=//cdn.example/a.js></script>",
        '<link rel="stylesheet" href="https://fonts.example/css?family=X">',
        '<link href="https://fonts.example" rel="preconnect">',
        '<img alt="" src="http://badges.example/1.svg">',
        "<style>@import url('https://fonts.example/x.css')</style>",
    ],
)
def test_resources_that_a_browser_fetches_are_reported(page: str, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(page)
    assert len(loads(tmp_path)) >= 1


def test_a_font_in_a_stylesheet_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text("@font-face { src: url(https://fonts.example/x.woff2) }")
    assert loads(tmp_path) == [f"{tmp_path}/a.css: https://fonts.example/x.woff2"]


def test_links_and_local_files_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        '<a href="https://ducklake.select">x</a><script src="a.js"></script><link rel="stylesheet" href="../a.css">'
        '<link rel="canonical" href="https://docs.example/"><img src="images/a.svg">'
    )
    (tmp_path / "a.css").write_text("a { background: url(images/x.png) }")
    assert loads(tmp_path) == []
