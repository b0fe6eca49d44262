"""Tests without servers and network."""
