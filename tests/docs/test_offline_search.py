"""The search of the built pages works in a page that is opened from a file."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.pages import REPOSITORY
from tests.servers.base import ServerUnavailable
from tests.servers.browser import browsing

_TYPE = """
document.querySelector("#__search").click();
const field = document.querySelector("input.md-search__input");
field.focus();
field.value = "rollback";
field.dispatchEvent(new KeyboardEvent("keyup"));
"""


@pytest.mark.skipif(find_spec("material") is None, reason="the docs are not built here; run `make docs`")
def test_a_page_that_is_opened_from_a_file_finds_words_on_other_pages(tmp_path: Path) -> None:
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(site)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(REPOSITORY)}
    subprocess.run(command, cwd=REPOSITORY, env=environment, check=True)
    try:
        with browsing(tmp_path / "profile", width=1200, height=800) as browser:
            browser.open((site / "concepts.html").as_uri(), "Five ideas")
            browser.value(_TYPE)
            browser.wait_for("matching documents")
            found = "[...document.querySelectorAll('.md-search-result__link')].map(link => link.href)"
            assert any("/changes.html" in link for link in browser.value(found))
    except ServerUnavailable as error:
        pytest.skip(str(error))
