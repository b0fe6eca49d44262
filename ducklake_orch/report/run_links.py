"""Link a snapshot to the run that made it, if the run's page is known: `run_link`."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from ducklake_orch.config.nearest import nearest
from ducklake_orch.errors import ConfigError

# Other schemes could run a script.
_SCHEMES = ("https://", "http://")
# The addresses of runs in the interfaces of the hosts, below the address of the interface.
_PAGES = {
    "dagster": "runs/{run_id}",
    "airflow": "dags/{dag_id}/runs/{run_id}/tasks/{task_id}",
}


def read_host_urls(urls: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return the addresses of the hosts' interfaces.

    Raises:
        ConfigError: When a host is unknown, or its address is no URL that a browser opens.
    """
    for host, url in (urls or {}).items():
        if host not in _PAGES:
            raise ConfigError(f"`host_urls`: `{host}` is unknown.", remedy=nearest(host, list(_PAGES)))
        if not url.startswith(_SCHEMES):
            raise ConfigError(
                f"`host_urls`: {url!r} is no address of {host}.", remedy=f"Give it as `https://{host}.example.com`."
            )
    return urls or {}


def run_link(extra: Any, hosts: Mapping[str, str]) -> tuple[str, str | None] | None:
    """Return the name of the run that made a snapshot, and the URL of its page if it is known.

    Args:
        extra: The extra information of the snapshot.
        hosts: The addresses of the hosts' interfaces.

    Examples:
        >>> run_link({"dagster": {"run_id": "1a2b"}}, {"dagster": "https://dagster.example.com"})
        ('dagster 1a2b', 'https://dagster.example.com/runs/1a2b')
    """
    if not isinstance(extra, dict):
        return None
    for host, page in _PAGES.items():
        run = extra.get(host)
        if isinstance(run, dict) and run.get("run_id"):
            return f"{host} {run['run_id']}", _recorded(run) or _built(run, hosts.get(host), page)
    url = _recorded(extra)
    return None if url is None else (url.partition("://")[2], url)


def _recorded(run: Mapping[str, Any]) -> str | None:
    """Return the URL that the writer recorded."""
    url = run.get("url")
    return url if isinstance(url, str) and url.startswith(_SCHEMES) else None


def _built(run: Mapping[str, Any], host: str | None, page: str) -> str | None:
    try:
        parts = {key: quote(str(value), safe="") for key, value in run.items()}
        return None if host is None else f"{host.rstrip('/')}/{page.format(**parts)}"
    except KeyError:  # another version recorded less
        return None
