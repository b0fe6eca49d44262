"""`python -m tests.docs.offline site`: the built pages load nothing from the network when they are read."""

import re
import sys
from pathlib import Path

# What a browser fetches by itself; a link that somebody has to click is none of these.
_LOADS = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*\b(?:src|data|srcset)=[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|icon|preload|preconnect|dns-prefetch|modulepreload))"
    r"[^>]*\bhref=[\"']?((?:https?:)?//[^\"'\s>]+)",
    re.IGNORECASE,
)
_STYLE_LOADS = re.compile(r"(?:url\(|@import\s+)[\"']?((?:https?:)?//[^\"')\s]+)", re.IGNORECASE)


def loads(site: Path) -> list[str]:
    """Return what the pages and styles of a folder fetch from elsewhere."""
    found = []
    for page in sorted(site.rglob("*.html")):
        text = page.read_text("utf-8")
        found += [f"{page}: {one[1] or one[2]}" for one in _LOADS.finditer(text)]
        inside = "".join(re.findall(r"<style.*?</style>", text, re.DOTALL))
        found += [f"{page}: {one[1]}" for one in _STYLE_LOADS.finditer(inside)]
    for style in sorted(site.rglob("*.css")):
        found += [f"{style}: {one[1]}" for one in _STYLE_LOADS.finditer(style.read_text("utf-8"))]
    return found


if __name__ == "__main__":
    if lines := loads(Path(sys.argv[1])):
        sys.exit("\n".join(["These are fetched when a page is read:", *lines]))
