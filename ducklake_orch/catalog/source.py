"""What is to be written, however the caller holds it: as a stream of Arrow batches."""

from typing import Any

import duckdb

from ducklake_orch.errors import ConfigError


class Source:
    """Rows to write.

    Args:
        data: A pyarrow.Table or RecordBatchReader, or anything that offers an Arrow stream: Polars, pandas, a relation.

    Attributes:
        repeatable: Whether the rows can be read again, for a second attempt.
    """

    def __init__(self, data: Any) -> None:
        import pyarrow as pa

        if not hasattr(data, "__arrow_c_stream__"):
            raise ConfigError(
                f"A {type(data).__name__} cannot be written.", remedy="Give a pyarrow.Table or RecordBatchReader."
            )
        self.repeatable = not isinstance(data, pa.RecordBatchReader)
        self._data = data

    def reader(self) -> Any:
        """Return the rows as a pyarrow.RecordBatchReader."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_stream(self._data) if self.repeatable else self._data

    def types(self, con: duckdb.DuckDBPyConnection) -> list[tuple[str, Any]]:
        """Return the names of the columns and their types in DuckDB."""
        schema = (self._data if not self.repeatable else self.reader()).schema
        relation = con.from_arrow(schema.empty_table())
        return list(zip(relation.columns, relation.types, strict=True))
