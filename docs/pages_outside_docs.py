"""Add pages to the documentation whose files are outside `docs/`."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_PAGES = ("CONTRIBUTING.md", "CHANGELOG.md")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add them."""
    for name in _PAGES:
        path = Path(config.config_file_path).with_name(name)
        files.append(File.generated(config, name.lower(), content=path.read_text("utf-8")))
    return files
