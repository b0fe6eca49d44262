"""Tests without engine and network."""
