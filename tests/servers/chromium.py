"""Headless Chromium: opens a page, and returns its document and the messages in its console."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.servers.base import Server

_COMPLAINT = re.compile(r"\[.*CONSOLE.*\] \"(.*)\", source")


class Chromium(Server):
    """A program and not a server: each page has its own process."""

    name = "chromium"
    how = "make servers"

    @classmethod
    def command(cls, profile: Path, *, width: int, height: int) -> list[str]:
        """Return the command that starts the browser, without a page.

        Args:
            profile: The folder of the profile.
            width: The width of the window.
            height: The height of the window.
        """
        options = ["--headless", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
        options += ["--no-sandbox"] if os.geteuid() == 0 else []
        return [str(cls.find_program("chromium")), *options, f"--window-size={width},{height}"]


@dataclass(frozen=True)
class Opened:
    """A page after it was opened.

    Attributes:
        dom: The document after its scripts ran.
        complaints: The messages in the console.
    """

    dom: str
    complaints: list[str]


def open_page(path: Path, *, width: int = 1280, height: int = 1600, screenshot: Path | None = None) -> Opened:
    """Open a page from a file, with a temporary profile.

    Args:
        path: The page.
        width: The width of the window.
        height: The height of the window.
        screenshot: The file for a picture of the page.
    """
    command = Chromium.command(path.with_suffix(".profile"), width=width, height=height)
    command += ["--enable-logging=stderr", "--dump-dom", *([f"--screenshot={screenshot}"] if screenshot else [])]
    completed = subprocess.run([*command, path.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    return Opened(completed.stdout, _COMPLAINT.findall(completed.stderr))
