"""`ducklake-orch index`: creates or drops indexes of the catalog."""

from typing import Annotated

import typer

from ducklake_orch.cli.options import LakeOptions
from ducklake_orch.cli.output import print_json


def index(
    options: LakeOptions,
    drop: Annotated[bool, typer.Option("--drop", help="Drop the indexes instead.")] = False,
) -> None:
    """Create indexes on the catalog, with which large tables with many partitions are planned faster."""
    lake = options.open()
    if drop:
        lake.drop_indexes()
    else:
        lake.create_indexes()
    if options.json:
        print_json({"indexes": not drop})
    else:
        typer.echo("The indexes are dropped." if drop else "The indexes exist.")
