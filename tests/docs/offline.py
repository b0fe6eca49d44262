"""`python -m tests.docs.offline site` checks that the built pages load nothing from the network."""

import re
import sys
from pathlib import Path

# Elements that a browser fetches by itself. Links that a reader clicks are not among them.
_LOADS = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*\b(?:src|data|srcset)=[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|icon|preload|preconnect|dns-prefetch|modulepreload))"
    r"[^>]*\bhref=[\"']?((?:https?:)?//[^\"'\s>]+)",
    re.IGNORECASE,
)
_STYLE_LOADS = re.compile(r"(?:url\(|@import\s+)[\"']?((?:https?:)?//[^\"')\s]+)", re.IGNORECASE)


def loads(site: Path) -> list[str]:
    """Return the external resources that the pages and stylesheets of a folder fetch."""
    resources = []
    for page in sorted(site.rglob("*.html")):
        text = page.read_text("utf-8")
        resources += [f"{page}: {match[1] or match[2]}" for match in _LOADS.finditer(text)]
        inside = "".join(re.findall(r"<style.*?</style>", text, re.DOTALL))
        resources += [f"{page}: {match[1]}" for match in _STYLE_LOADS.finditer(inside)]
    for style in sorted(site.rglob("*.css")):
        resources += [f"{style}: {match[1]}" for match in _STYLE_LOADS.finditer(style.read_text("utf-8"))]
    return resources


if __name__ == "__main__":
    if lines := loads(Path(sys.argv[1])):
        sys.exit("\n".join(["These are fetched when a page is read:", *lines]))
