"""Compute the bucket of an integer as DuckDB does, which differs from Spark's `hash`: `bucket_of`.

DuckDB uses murmur3 (x86, 32 bits, seed 0) over the eight bytes of the number. Spark's integers are signed and raise on
overflow, so 32-bit words are kept in bigints and multiplied in two halves. A lambda binds each value that is used
twice: written out, the expression would double with every step.
"""

from collections.abc import Callable
from typing import Any

_WORD = 0xFFFFFFFF


def bucket_of(column: Any, buckets: int) -> Any:
    """Return the bucket of each value, NULL for NULL."""
    value = column.cast("bigint")
    low = value.bitwiseAND(_WORD)
    high = _shift_right(value, 32).bitwiseAND(_WORD)
    first = _rotate(_scrambled(low), 13)
    second = _rotate((first * 5 + 0xE6546B64).bitwiseAND(_WORD).bitwiseXOR(_scrambled(high)), 13)
    return _finish((second * 5 + 0xE6546B64).bitwiseAND(_WORD)).bitwiseAND(0x7FFFFFFF) % buckets


def _scrambled(word: Any) -> Any:
    return _times(_rotate(_times(word, 0xCC9E2D51), 15), 0x1B873593)


def _finish(hashed: Any) -> Any:
    from pyspark.sql import functions

    length = functions.lit(8).cast("bigint")
    hashed = _times(_folded(hashed.bitwiseXOR(length), 16), 0x85EBCA6B)
    hashed = _times(_folded(hashed, 13), 0xC2B2AE35)
    return _folded(hashed, 16)


def _times(word: Any, factor: int) -> Any:
    """Return the lower 32 bits of a product."""

    def product(value: Any) -> Any:
        high = (value * (factor >> 16)).bitwiseAND(0xFFFF) * 65536
        return (value * (factor & 0xFFFF) + high).bitwiseAND(_WORD)

    return _computed_once(word, product)


def _rotate(word: Any, bits: int) -> Any:
    from pyspark.sql import functions

    return _computed_once(
        word,
        lambda value: functions.shiftleft(value, bits).bitwiseAND(_WORD).bitwiseOR(_shift_right(value, 32 - bits)),
    )


def _folded(word: Any, bits: int) -> Any:
    return _computed_once(word, lambda value: value.bitwiseXOR(_shift_right(value, bits)))


def _shift_right(word: Any, bits: int) -> Any:
    from pyspark.sql import functions

    return functions.shiftrightunsigned(word, bits)


def _computed_once(value: Any, body: Callable[[Any], Any]) -> Any:
    """Return an expression over a value that is computed once."""
    from pyspark.sql import functions

    return functions.transform(functions.array(value), body)[0]
