#!/usr/bin/env bash
# Makes Apache Flink ready to be measured.
#
#   prepare.sh FOLDER
#
# Fetches Flink's jar into FOLDER (330 MB, once) and compiles the harness there. Prints the class
# path, then the versions.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:?usage: prepare.sh FOLDER}
version=2.3.0
jar=$folder/pyflink/lib/flink-dist-$version.jar

missing() {
  echo "missing: $1" >&2
  echo "install it, on Debian or Ubuntu: apt-get install $2" >&2
  exit 2
}

command -v javac > /dev/null || missing "a JDK (javac), 17 or newer" openjdk-17-jdk-headless
release=$(javac -version 2>&1 | sed -E 's/javac ([0-9]+).*/\1/')
[[ $release -ge 17 ]] || missing "a JDK 17 or newer, this is $release" openjdk-17-jdk-headless

mkdir -p "$folder"
# Two runs at a time must not fetch or compile into each other.
exec 9> "$folder/lock"
flock 9

if [[ ! -f $jar ]]; then
  python3 -m pip --version > /dev/null 2>&1 || missing "Python 3 with pip" "python3 python3-pip"
  echo "fetching Flink $version (330 MB) into $folder" >&2
  download=$(mktemp -d "$folder/download.XXXXXX")
  trap 'rm -rf "$download"' EXIT
  # The jar lies in a wheel on PyPI; no Maven is needed.
  python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$download" \
    "apache-flink-libraries==$version" >&2
  python3 - "$download" "$jar" << 'PYTHON'
import pathlib, shutil, sys, zipfile
download, jar = map(pathlib.Path, sys.argv[1:])
wheel = next(download.glob("*.whl"))
part = jar.with_suffix(".part")
part.parent.mkdir(parents=True, exist_ok=True)
with zipfile.ZipFile(wheel) as archive, archive.open(f"pyflink/lib/{jar.name}") as source:
    with part.open("wb") as target:
        shutil.copyfileobj(source, target)
part.rename(jar)
PYTHON
fi

sources=$(cat "$here"/src/peer/flink/*.java | sha256sum | cut -c 1-16)
classes=$folder/classes-$sources
if [[ ! -d $classes ]]; then
  rm -rf "$folder"/classes-* && mkdir -p "$classes.part"
  javac -proc:none -nowarn -cp "$jar" -d "$classes.part" "$here"/src/peer/flink/*.java >&2
  mv "$classes.part" "$classes"
fi

echo "$classes:$jar"
echo "Apache Flink $version, $(java -version 2>&1 | head -n 1)"
