"""`ducklake-orch init`: writes a starter configuration file, and creates the lake with `--create`."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from ducklake_orch.cli.options import DEFAULT_FILE, LakeOptions
from ducklake_orch.cli.output import print_json
from ducklake_orch.errors import ConfigFileError


def init(
    options: LakeOptions,
    path: Annotated[Path, typer.Argument(help="The file, or the folder to put it in.")] = Path(DEFAULT_FILE),
    create: Annotated[bool, typer.Option("--create", help="Also create the lake.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a commented `ducklake.toml`, without secrets."""
    from ducklake_orch.config.loading import DEFAULT_NAME
    from ducklake_orch.config.template import starter_toml

    if options.config is not None or options.profile is not None:
        raise typer.BadParameter("`init` reads no file: name the new file as its argument.")
    path = path / DEFAULT_FILE if path.is_dir() else path
    if path.exists() and create and not force and not (options.catalog or options.storage):
        _create_from(path, options)
        return
    if path.exists() and not force:
        raise ConfigFileError(f"{path} exists already.", remedy="Name another file, or overwrite it with --force.")
    name = options.lake or DEFAULT_NAME
    catalog, storage = _catalog_and_storage(name, path.parent, options)
    text = starter_toml(name, *[_url(_relative_to(path.parent, model)) for model in (catalog, storage) if model])
    if create:
        # Created before the file is written, so that a second attempt after a failure starts from the same state.
        _create(name, catalog, storage)
    _write(path, text)
    report = {"path": os.path.abspath(path), "lake": name, "created": create}
    if options.json:
        print_json(report)
        return
    typer.echo(f"Wrote {report['path']}" + (f" and created lake `{name}`." if create else "."))
    typer.echo(f"{'Next' if create else 'Fill it in, then'}: `ducklake-orch doctor --config {path}`.")


def _create_from(path: Path, options: LakeOptions) -> None:
    """Create the lake that a file configures, without changing the file."""
    from ducklake_orch.lake import DuckLake

    lake = DuckLake.from_toml(path, lake=options.lake, create_if_missing=True)
    with lake.connect():
        pass
    report = {"path": os.path.abspath(path), "lake": lake.config.name, "created": True}
    if options.json:
        print_json(report)
    else:
        typer.echo(f"Created lake `{lake.config.name}` of {report['path']}.")


def _catalog_and_storage(name: str, folder: Path, options: LakeOptions) -> tuple[Any, Any]:
    """Return the given catalog and storage; by default they are in the folder of the new file."""
    from ducklake_orch.config.lake import default_storage, read_catalog
    from ducklake_orch.config.storages import STORAGES

    catalog = read_catalog(options.catalog, name, folder)
    storage = STORAGES.read(options.storage)
    if storage is None and catalog.needs_storage:
        storage = default_storage(name, folder)
    return catalog, storage


def _relative_to(folder: Path, model: Any) -> Any:
    """Return a catalog or storage for the file, in which relative paths count from the file's folder."""
    path: Path | None = getattr(model, "path", None)
    if path is None or path.is_absolute():
        return model
    return model.model_copy(update={"path": Path(os.path.relpath(path, folder))})


def _url(model: Any) -> str:
    return str(model.to_url(reveal=True))


def _create(name: str, catalog: Any, storage: Any) -> None:
    from ducklake_orch.config.loading import load
    from ducklake_orch.lake import DuckLake

    # Variables can hold passwords for this lake, but they must not select another file or profile.
    elsewhere = {"DUCKLAKE_CONFIG", "DUCKLAKE_PROFILE"}
    environ = {key: value for key, value in os.environ.items() if key not in elsewhere}
    urls = {what: _url(model) for what, model in (("catalog", catalog), ("storage", storage)) if model}
    loaded = load(environ=environ, lake=name, create_if_missing=True, **urls)
    with DuckLake(loaded.config, origins=loaded.origins).connect():
        pass


def _write(path: Path, text: str) -> None:
    failure = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        failure = error.strerror
    if failure:
        raise ConfigFileError(f"{path} cannot be written: {failure}.", remedy="Choose another path.")
