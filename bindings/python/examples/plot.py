"""Draws a year of weather: the least, mean and greatest temperature of each day at three airports of New York.

    python plot.py ../../../data/weather_nyc_2013.csv.gz weather.db weather.png

The sample's times are milliseconds since 1970 UTC. The year is read from a CSV file into the database, and asked for by day: the
answer comes from stored aggregates, so it is quick for ten years too.
"""

from __future__ import annotations

import sys

import headwater
import matplotlib
import pandas as pd

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

FIELDS = ["temp", "humid", "wind_speed", "pressure"]


def load(db: headwater.Database, source: str) -> int:
    """Writes the sample; each airport is a stream."""
    frame = pd.read_csv(source, na_values="NA")
    frame["time"] = pd.to_datetime(frame["epoch_ms"], unit="ms")
    written = db.write_frame("weather", frame, tag_columns=["origin"], fields=FIELDS, nan="absent")
    return written.accepted


def draw(db: headwater.Database, picture: str) -> None:
    """One panel for each airport."""
    days = db.aggregate("weather", "temp", every="1d").pandas()
    groups = list(days.groupby("origin", observed=True))
    figure, panels = plt.subplots(len(groups), 1, sharex=True, sharey=True, figsize=(10, 8), layout="constrained")
    for panel, (origin, day) in zip(panels, groups, strict=True):
        panel.fill_between(day["time"], day["min"], day["max"], alpha=0.3, linewidth=0, label="least to greatest")
        panel.plot(day["time"], day["mean"], linewidth=1, label="mean of the day")
        panel.set_title(str(origin), loc="left")
        panel.set_ylabel("°F")
        panel.grid(alpha=0.3)
    panels[0].legend(loc="lower center", ncols=2)
    figure.savefig(picture, dpi=100)


def main() -> None:
    source, path, picture = sys.argv[1:4]
    with headwater.open(path) as db:
        print(f"{load(db, source)} rows of {len(db.streams('weather'))} airports")
        draw(db, picture)
        for tags in db.streams("weather"):
            last = db.last("weather", tags)["temp"]
            print(f"{tags['origin']}: {last.value!r} °F at {last.time}")


if __name__ == "__main__":
    main()
