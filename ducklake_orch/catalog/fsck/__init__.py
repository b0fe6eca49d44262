"""Find and explain every broken state of a lake, and mend what can be mended without guessing."""
