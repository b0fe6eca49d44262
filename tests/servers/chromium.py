"""Chromium without a window: what a page becomes, and what it complains about."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.servers.base import Server

_COMPLAINT = re.compile(r"\[.*CONSOLE.*\] \"(.*)\", source")


class Chromium(Server):
    """A program and no server: each page has a process of its own."""

    name = "chromium"
    how = "make servers"

    @classmethod
    def command(cls, profile: Path, *, width: int, height: int) -> list[str]:
        """Return how to start it, without what it is to do.

        Args:
            profile: A folder of its own.
            width: Of the window.
            height: Of the window.
        """
        options = ["--headless", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
        options += ["--no-sandbox"] if os.geteuid() == 0 else []
        return [str(cls.find_program("chromium")), *options, f"--window-size={width},{height}"]


@dataclass(frozen=True)
class Opened:
    """A page that was opened.

    Attributes:
        dom: The document after its scripts ran.
        complaints: What stands in the console.
    """

    dom: str
    complaints: list[str]


def open_page(path: Path, *, width: int = 1280, height: int = 1600, screenshot: Path | None = None) -> Opened:
    """Open a page from a file, with a profile that is thrown away.

    Args:
        path: The page.
        width: Of the window.
        height: Of the window.
        screenshot: Where a picture of it goes.
    """
    command = Chromium.command(path.with_suffix(".profile"), width=width, height=height)
    command += ["--enable-logging=stderr", "--dump-dom", *([f"--screenshot={screenshot}"] if screenshot else [])]
    done = subprocess.run([*command, path.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    return Opened(done.stdout, _COMPLAINT.findall(done.stderr))
