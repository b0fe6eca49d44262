"""A pipeline like that on New York's taxi trips: raw trips by day, cleaned, summed up by zone and hour, with Spark.

    python docs/examples/taxi.py [FOLDER]

The trips are made here, so no network is needed, and each run of it makes the same ones. Run it twice: the second run
replaces what the first one wrote, day by day, and changes no figure.
"""

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from ducklake_orch import CommitInfo, DuckLake
from ducklake_orch.spark import local_session

DAYS = ["2026-01-01", "2026-01-02", "2026-01-03"]
TRIPS_PER_DAY = 20_000
ZONES = ["Harlem", "Midtown", "SoHo", "Astoria", "JFK Airport"]
# Some trips are broken, as they are in life: no distance, a fare below zero, a drop-off before the pick-up.
RAW = """
SELECT id,
       timestamp_ntz'{day} 00:00:00' + make_dt_interval(0, 0, 0, id * 86400 / {trips}) AS picked_up,
       timestamp_ntz'{day} 00:00:00' + make_dt_interval(0, 0, 0, id * 86400 / {trips})
         + make_dt_interval(0, 0, IF(id % 997 = 0, -5, CAST(4 + id * 7 % 41 AS INT))) AS dropped_off,
       element_at(array({zones}), CAST(id * 13 % {count} AS INT) + 1) AS zone,
       IF(id % 503 = 0, 0, CAST(5 + id * 11 % 180 AS DECIMAL(9, 1)) / 10) AS miles,
       CAST(IF(id % 701 = 0, -3, 3 + id * 11 % 180 * 0.25) AS DECIMAL(9, 2)) AS fare
FROM range({trips})
"""


def raw_trips(spark: SparkSession, day: str) -> DataFrame:
    """Return the trips of a day, as a meter would have recorded them."""
    zones = ", ".join(f"'{zone}'" for zone in ZONES)
    return spark.sql(RAW.format(day=day, trips=TRIPS_PER_DAY, zones=zones, count=len(ZONES)))


def load(lake: DuckLake, spark: SparkSession) -> None:
    """Put each day into the raw table: it replaces exactly that day, so that a backfill can run it again."""
    for day in DAYS:
        slice_ = f"picked_up >= '{day}' AND picked_up < DATE '{day}' + INTERVAL 1 DAY"
        lake.write(
            raw_trips(spark, day),
            "taxi.raw_trips",
            mode="replace_where",
            where=slice_,
            partition_by=["year(picked_up)", "month(picked_up)", "day(picked_up)"],
            commit=CommitInfo(author="taxi.py", message=f"trips of {day}"),
        )


def clean(lake: DuckLake, spark: SparkSession) -> None:
    """Keep the trips that can be true."""
    lake.read("taxi.raw_trips", spark).createOrReplaceTempView("raw_trips")
    good = spark.sql(
        "SELECT *, CAST(timestampdiff(MINUTE, picked_up, dropped_off) AS INT) AS minutes FROM raw_trips"
        " WHERE miles > 0 AND fare > 0 AND dropped_off > picked_up"
    )
    lake.write(good, "taxi.trips", mode="overwrite", sort_by=["zone", "picked_up"])


def sum_up(lake: DuckLake, spark: SparkSession) -> None:
    """Merge the figures of each zone and hour into a table: those that are there change, new ones join."""
    lake.read("taxi.trips", spark).createOrReplaceTempView("trips")
    figures = spark.sql(
        "SELECT zone, hour(picked_up) AS hour, count(*) AS trips, sum(fare) AS fares,"
        " CAST(avg(miles) AS DECIMAL(9, 2)) AS miles FROM trips GROUP BY ALL"
    )
    lake.write(figures, "taxi.by_zone", mode="merge", keys=["zone", "hour"])


def main(folder: Path) -> None:
    """Run the pipeline on a lake in a folder."""
    lake, spark = DuckLake.local(folder / "city"), local_session("taxi")
    load(lake, spark)
    clean(lake, spark)
    sum_up(lake, spark)
    raw, trips = lake.table("taxi.raw_trips"), lake.table("taxi.trips")
    print(f"{raw.count()} trips in {len(raw.partitions())} partitions, {raw.count() - trips.count()} of them broken")
    best = lake.execute(
        "SELECT zone, sum(trips) AS trips, sum(fares) AS fares FROM taxi.by_zone GROUP BY zone ORDER BY fares DESC"
    ).raise_for_error()
    for row in best.rows:
        print(f"{row['zone']:<12} {row['trips']:>6} trips {row['fares']:>10} $")
    morning = lake.read("taxi.trips", spark, where="picked_up < '2026-01-01 06:00:00'")
    print(f"{morning.count()} trips before six on the first morning")
    print("health:", lake.health().grade)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
