"""The author and message of the snapshots that a command commits."""

import getpass
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ducklake_orch.results import CommitInfo

Author = Annotated[
    str | None, typer.Option("--author", help="Author of the snapshot; default is the user.", show_default=False)
]
Message = Annotated[str | None, typer.Option("--message", help="Message of the snapshot.", show_default=False)]


def commit_info(author: str | None, message: str | None) -> "CommitInfo":
    """Return what a snapshot records of a command.

    Args:
        author: The author; None for the user of the operating system.
        message: The message. There is no default, because a lake can require users to give one.
    """
    from ducklake_orch.results import CommitInfo

    return CommitInfo(author=author or _user(), message=message)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container can run as a user id without a name
        return "ducklake-orch"
