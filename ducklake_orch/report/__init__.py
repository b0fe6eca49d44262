"""One page about a lake, for people: what is in it, how it is, who wrote what; a file of its own, without network."""
