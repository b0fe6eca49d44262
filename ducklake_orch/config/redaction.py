"""Mask secrets in every text that a person or a log can see: `Scrubber`."""

import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

MASK = "***"

# What precedes the password in a URL. These patterns run over whole statements and messages, so each of them must take
# linear time: a pattern that tries every place of a long text, and from there reads on to its end, takes hours.
_LOGIN = re.compile(r"[A-Za-z0-9+.-]://[^:/?#@\s]*:")
# The drivers' key=value forms.
_KEY_VALUE = re.compile(
    r"(?P<head>(?<![A-Za-z])(?:password|passwd|pwd|secret|secret_access_key|session_token|account_?key|client_secret|token"
    r"|motherduck_token|sharedaccesskey|connection_string)\s*[=:]\s*)(?P<secret>'(?:[^'\\]|\\.|'')*'|\"[^\"]*\"|[^\s&;,)\"']+)",
    re.IGNORECASE,
)

# A key of an encrypted file in an excerpt of SQL, which may begin or end within the key.
_FILE_KEY = re.compile(r"(?<=base64\(')[A-Za-z0-9+/=]+|(?<![A-Za-z0-9+/=])[A-Za-z0-9+/=]++(?='\)\})")

# A setting whose name indicates that its value is a secret.
SECRET_WORD = re.compile(r"(?:password|passwd|secret|token|credential)[\w.]*\s*=", re.IGNORECASE)


def redact_url(url: str) -> str:
    """Mask the password and secret query parameters of a URL."""
    return _KEY_VALUE.sub(rf"\g<head>{MASK}", "\n".join(map(_without_password, url.split("\n"))))


def _without_password(line: str) -> str:
    """Mask the password of a URL in a line; it may hold anything, so it ends at the last `@`."""
    end = line.rfind("@")
    login = _LOGIN.search(line, 0, max(end, 0))
    return line if login is None else f"{line[: login.end()]}{MASK}{line[end:]}"


def spellings(secret: str) -> set[str]:
    """Return the forms in which a secret can appear in SQL, connection strings, URLs and messages."""
    backslashed = secret.replace("\\", "\\\\").replace("'", "\\'")
    return {
        secret,
        secret.replace("'", "''"),
        backslashed,
        backslashed.replace("'", "''"),
        quote(secret, safe="", errors="replace"),
        quote(secret, errors="replace"),
        quote_plus(secret, errors="replace"),
        repr(secret)[1:-1],
        secret.encode("unicode_escape").decode("ascii"),
    }


def _parts(secret: str) -> set[str]:
    """Return a secret and its long parts: a driver that takes an `@` in it for its end shows a part of it."""
    return {secret, *(part for part in re.split("[@/?#:]", secret) if len(part) >= 6)}


class Scrubber:
    """Masks known secrets, and text that looks like a secret."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for secret in secrets if secret for part in _parts(secret) for form in spellings(part)}
        # The longest first, so that a secret that contains another is masked whole.
        self._known = sorted(forms, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """Return `text` without secrets."""
        for form in self._known:
            if len(form) > 3:
                text = text.replace(form, MASK)
            else:
                # A very short password may be part of ordinary words, so it is masked only as a whole word.
                text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", MASK, text)
        return redact_url(_FILE_KEY.sub(MASK, text))

    def clean(self, error: BaseException) -> None:
        """Mask secrets in an exception and everything chained to it, in place.

        In place, because Python keeps `__context__` even if `raise … from None` hides it.
        """
        seen: set[int] = set()
        pending: list[BaseException | None] = [error]
        while pending:
            current = pending.pop()
            if current is None or id(current) in seen:
                continue
            seen.add(id(current))
            current.args = tuple(self(part) if isinstance(part, str) else part for part in current.args)
            for name, value in list(vars(current).items()):
                if isinstance(value, str):
                    setattr(current, name, self(value))
            if notes := getattr(current, "__notes__", None):
                current.__notes__ = [self(note) for note in notes]
            pending += [current.__cause__, current.__context__]
            if isinstance(current, BaseExceptionGroup):
                pending += list(current.exceptions)
