"""Read and write the URL forms of catalogs and storages; every part may be percent-encoded."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode

from pydantic import SecretStr

from ducklake_orch.config.nearest import nearest
from ducklake_orch.config.redaction import MASK
from ducklake_orch.errors import ConfigError

_HOST = re.compile(r"(\[[^\]]*\]|[\w.,%~-]*)(:\d*)?(/[^@?]*)?(\?.*)?")


class Url(NamedTuple):
    """The decoded parts of `scheme://user:password@host:port/path?query`."""

    scheme: str
    user: str | None
    password: str | None
    host: str | None
    port: int | None
    path: str
    query: dict[str, str]

    def login_fields(self) -> dict[str, Any]:
        """Return what the URL says about a database server, without what it leaves out."""
        fields = {"host": self.host, "port": self.port, "user": self.user, "password": self.password}
        return {key: value for key, value in fields.items() if value is not None} | (
            {"database": self.path} if self.path else {}
        )


def scheme_of(text: str) -> str | None:
    """Return the scheme of a URL in lower case, or None for a plain path."""
    head, colon, rest = text.partition(":")
    named = head.replace("+", "").replace("-", "").isalnum() and head[0].isalpha()
    # One letter is a Windows drive; without a slash only MotherDuck's short form (`md:lake`) is a URL.
    known = rest.startswith("//") or head.lower() in {"md", "motherduck"}
    return head.lower() if colon and len(head) > 1 and named and known else None


def shown(url: str) -> str:
    """Return a URL as errors show it: without password and query, where a secret can stand under any misspelt key."""
    scheme, colon, rest = url.partition("://") if "://" in url else ("", "", url)
    login, at, rest = rest.rpartition("@")
    user, mask = re.split("[:/?]", login)[0], f":{MASK}" if ":" in login else ""
    # What follows a colon and is no port can be a password whose `@host` was forgotten.
    place = re.sub(r":(?!\d+(?:/|$)).*", f":{MASK}", rest.partition("?")[0], flags=re.DOTALL)
    return f"{scheme}{colon}{user}{mask}{at}{place}"


def split_url(text: str, *, raw_password: bool = False) -> Url:
    """Split a server or bucket URL into decoded parts.

    Args:
        text: The URL.
        raw_password: Take `/ ? # @` in a password though they are not encoded, as people paste them.
    """
    scheme, _, rest = text.partition("://")
    login, at, rest = _split_login(rest, raw_password)
    authority, path, query = _split_path(rest)
    host, port = _host_and_port(text, authority)
    user, colon, password = login.partition(":")
    return Url(
        scheme.lower(),
        unquote(user) if at and user else None,
        unquote(password) if colon else None,
        unquote(host) or None,
        port,
        unquote(path),
        parse_query(text, query),
    )


def _split_login(rest: str, raw_password: bool) -> tuple[str, str, str]:
    authority = re.split("[/?]", rest, maxsplit=1)[0]
    # `user:` before the first slash that is no `host:port` can only be the start of an unencoded password.
    _, colon, tail = authority.partition(":")
    if raw_password and colon and (not tail.isdigit() or "@" in authority):
        for found in reversed(list(re.finditer("@", rest))):
            if _HOST.fullmatch(rest[found.end() :]):
                return rest[: found.start()], "@", rest[found.end() :]
    login, at, _ = authority.rpartition("@")
    return login, at, rest[len(login) + len(at) :]


def _split_path(rest: str) -> tuple[str, str, str]:
    before, _, query = rest.partition("?")
    authority, _, path = before.partition("/")
    return authority, path, query


def _host_and_port(url: str, authority: str) -> tuple[str, int | None]:
    if authority.startswith("["):  # IPv6
        host, _, tail = authority[1:].partition("]")
        port = tail.removeprefix(":")
    else:
        host, _, port = authority.partition(":")
    if port and not (port.isdecimal() and port.isascii() and 0 < int(port) < 65536):
        raise ConfigError(f"The port in `{shown(url)}` is not a number from 1 to 65535.")
    return host, int(port) if port else None


def parse_query(url: str, query: str) -> dict[str, str]:
    """Read query parameters; the same one twice is an error."""
    found: dict[str, str] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key in found:
            raise ConfigError(f"`{key}` stands twice in `{shown(url)}`.")
        found[key] = value
    return found


def file_path(url: str, what: str) -> tuple[str, dict[str, str]]:
    """Return path and query of `scheme:///relative` or `scheme:////absolute`; the path may be raw or encoded."""
    scheme, _, rest = url.partition("://")
    if not rest.startswith("/") or rest == "/":
        raise ConfigError(
            f"`{shown(url)}` names no {what} file.",
            remedy=f"Write {scheme}:///relative.path with three slashes, or {scheme}:////absolute/path with four.",
        )
    path, mark, query = rest[1:].rpartition("?")
    if not mark or "=" not in query or "/" in query:  # a '?' inside a raw file name
        path, query = rest[1:], ""
    return unquote(path), parse_query(url, query)


def refuse_unknown(url: str, query: Mapping[str, str], known: Iterable[str]) -> None:
    """Refuse query parameters that mean nothing, naming the nearest one that does."""
    known = set(known)
    for key in query:
        if key not in known:
            raise ConfigError(f"Unknown parameter `{key}` in `{shown(url)}`.", remedy=nearest(key, known))


def refuse_scheme(url: str, what: str, known: Iterable[str]) -> ConfigError:
    """Return the error for a URL whose scheme is none of the known ones."""
    scheme = scheme_of(url)
    if scheme is None:
        # A path is what people try first; DuckDB's own `ducklake:sqlite:…` comes second.
        path = url.removeprefix("ducklake:").removeprefix("sqlite:")
        hint = f"Write `sqlite:///{path}`. " if "sqlite" in known and re.fullmatch(r"[\w./~-]+", path) else ""
        remedy = hint + nearest("", known)
        return ConfigError(f"`{shown(url)}` is not a {what} URL: it has no scheme.", remedy=remedy)
    problem = f"The scheme `{scheme}` of `{shown(url)}` is not one of a {what}."
    return ConfigError(problem, remedy=nearest(scheme, known))


def build_url(
    scheme: str,
    *,
    host: str = "",
    port: int | None = None,
    user: str | None = None,
    password: SecretStr | None = None,
    path: str = "",
    query: Mapping[str, Any] | None = None,
    reveal: bool = False,
) -> str:
    """Write a URL that `split_url` reads back; secrets only with `reveal`."""

    def text(value: Any) -> str:
        if isinstance(value, SecretStr):
            return value.get_secret_value() if reveal else MASK
        return str(value).lower() if isinstance(value, bool) else str(value)

    login = quote(user or "", safe="")
    if password is not None:
        login += ":" + quote(text(password), safe="*")
    pairs = {key: text(value) for key, value in (query or {}).items() if value is not None}
    return "".join(
        [
            f"{scheme}://",
            f"{login}@" if login else "",
            f"[{host}]" if ":" in host else quote(host, safe=","),
            f":{port}" if port else "",
            f"/{quote(path)}" if path or pairs else "",
            f"?{urlencode(pairs, quote_via=quote, safe='*/')}" if pairs else "",
        ]
    )
