"""Suggest the known word that a user probably meant."""

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint with the closest known word, or with all known words."""
    words = {known_word.lower(): known_word for known_word in sorted(known)}
    close = difflib.get_close_matches(word.lower(), words, n=1, cutoff=0.6)
    return f"Did you mean `{words[close[0]]}`?" if close else f"Known: {', '.join(f'`{w}`' for w in words.values())}."
