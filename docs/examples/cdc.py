"""Changes of a PostgreSQL table into a lake: what is inserted, updated and deleted there, merged here, each once.

    pip install -c constraints.txt -e . 'psycopg[binary]'
    DATABASE_URL=postgresql://user:password@host/shop python docs/examples/cdc.py [FOLDER]

A trigger writes each change into a log. `copy_changes` takes from it what is certain, and moves its mark only when the
lake has it: a run that dies in between is repeated by the next, and a merge that is done twice changes nothing.
"""

import os
import sys
from pathlib import Path

import psycopg
import pyarrow as pa

from ducklake_orch import CommitInfo, DuckLake

# The log has the transaction of each change. Numbers of a sequence alone would not do: a transaction that began early
# and commits late has low ones, and a reader that is past them would never come back.
LOG = """
CREATE TABLE IF NOT EXISTS orders (id bigint PRIMARY KEY, status text NOT NULL, amount numeric(9, 2) NOT NULL);
CREATE TABLE IF NOT EXISTS orders_log (
    seq bigserial PRIMARY KEY, xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    gone boolean NOT NULL, id bigint NOT NULL, status text, amount numeric(9, 2)
);
CREATE TABLE IF NOT EXISTS lake_mark (name text PRIMARY KEY, xid xid8 NOT NULL);
INSERT INTO lake_mark VALUES ('orders', '0') ON CONFLICT DO NOTHING;
CREATE OR REPLACE FUNCTION log_order() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    -- A key that changes is one row that goes and another one that comes.
    IF TG_OP = 'DELETE' OR (TG_OP = 'UPDATE' AND NEW.id <> OLD.id) THEN
        INSERT INTO orders_log (gone, id) VALUES (true, OLD.id);
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO orders_log (gone, id, status, amount) VALUES (false, NEW.id, NEW.status, NEW.amount);
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER log_order AFTER INSERT OR UPDATE OR DELETE ON orders
    FOR EACH ROW EXECUTE FUNCTION log_order();
"""
# All transactions before the oldest one that still runs are certain. Of each row only the last state counts.
CHANGES = """
SELECT DISTINCT ON (id) id, gone, status, amount FROM orders_log
WHERE xid >= %(mark)s::xid8 AND xid < %(upto)s::xid8 ORDER BY id, seq DESC
"""
ROW = pa.schema([("id", pa.int64()), ("status", pa.string()), ("amount", pa.decimal128(9, 2))])


def copy_changes(postgres: psycopg.Connection, lake: DuckLake) -> tuple[int, int]:
    """Merge what has changed since the last time into the lake; return how many rows came or changed, and went."""
    with postgres.transaction():
        asked = "SELECT xid::text, pg_snapshot_xmin(pg_current_snapshot())::text FROM lake_mark WHERE name = 'orders'"
        mark, upto = postgres.execute(asked + " FOR UPDATE").fetchone() or ("0", "0")
        found = postgres.execute(CHANGES, {"mark": mark, "upto": upto}).fetchall()
        here = [{"id": id_, "status": status, "amount": amount} for id_, gone, status, amount in found if not gone]
        gone = [{"id": id_} for id_, is_gone, *_ in found if is_gone]
        told = CommitInfo(author="cdc.py", message=f"orders up to transaction {upto}", extra={"xid": upto})
        lake.write(pa.Table.from_pylist(here, ROW), "shop.orders", mode="merge", keys=["id"], commit=told)
        lake.write(
            pa.Table.from_pylist(gone, pa.schema([ROW.field("id")])),
            "shop.orders",
            mode="merge",
            keys=["id"],
            when_matched="delete",
            when_not_matched="ignore",
            commit=told,
        )
        # Last of all, and only if nothing failed: the mark, and the log that nobody needs any more.
        postgres.execute("UPDATE lake_mark SET xid = %s::xid8 WHERE name = 'orders'", [upto])
        postgres.execute("DELETE FROM orders_log WHERE xid < %s::xid8", [upto])
    return len(here), len(gone)


def main(url: str, folder: Path) -> None:
    """Change a table three times, copy after each, and compare."""
    lake = DuckLake.local(folder / "cdc")
    if not lake.exists("shop.orders"):
        lake.create_table("shop.orders", ROW)
    with psycopg.connect(url, autocommit=True) as postgres:
        postgres.execute(LOG)
        for statements in (
            "INSERT INTO orders SELECT n, 'new', n * 1.5 FROM generate_series(1, 1000) AS n",
            "UPDATE orders SET status = 'paid' WHERE id % 10 = 0; DELETE FROM orders WHERE id > 990",
            "UPDATE orders SET id = id + 5000 WHERE id = 1; INSERT INTO orders VALUES (995, 'new again', 1)",
        ):
            postgres.execute(statements)
            came, went = copy_changes(postgres, lake)
            print(f"{came} came or changed, {went} went: {lake.table('shop.orders').count()} orders in the lake")
        print("nothing new:", copy_changes(postgres, lake))
        there = postgres.execute("SELECT id, status, amount FROM orders ORDER BY id").fetchall()
    here = [tuple(row.values()) for row in lake.read("shop.orders").sort_by("id").to_pylist()]
    print("the same rows:", there == here)
    kinds = lake.changes("shop.orders").group_by("change_type").aggregate([("rowid", "count")]).sort_by("change_type")
    print({row["change_type"]: row["rowid_count"] for row in kinds.to_pylist()})


if __name__ == "__main__":
    main(os.environ["DATABASE_URL"], Path(sys.argv[1] if len(sys.argv) > 1 else "."))
