#!/usr/bin/env bash
# Prints the folder that holds Apache Kafka's jars, fetching them with Maven the first time (about 150 MB).
#
# usage: scripts/kafka-jars.sh [--where]     --where only prints it
#
# They live outside the source tree, so that every clone shares them: $TIDEGATE_KAFKA_LIB, else
# ${XDG_CACHE_HOME:-$HOME/.cache}/tidegate/kafka-4.1.0. The folder appears whole or not at all, and each file must match
# kafka-jars.sha256, so that a broken download is never mistaken for a broker.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
sums=$here/kafka-jars.sha256
lib=${TIDEGATE_KAFKA_LIB:-${XDG_CACHE_HOME:-$HOME/.cache}/tidegate/kafka-4.1.0}

if [ "${1:-}" = --where ]; then
  echo "$lib"
  exit 0
fi

verify() {
  local wanted found
  wanted=$(wc -l <"$sums")
  found=$(find "$1" -maxdepth 1 -name '*.jar' | wc -l)
  [ "$found" -eq "$wanted" ] || { echo "\`$1\` holds $found jars, expected $wanted" >&2; return 1; }
  (cd "$1" && sha256sum --check --quiet --strict "$sums" >&2)
}

# The stamp spares hashing 150 MB on each run; it is written after a verification, and holds the list it was made with.
if [ -d "$lib" ]; then
  if ! cmp -s "$sums" "$lib/verified.sha256"; then
    verify "$lib" || { echo "remove \`$lib\` and run this again" >&2; exit 1; }
    cp "$sums" "$lib/verified.sha256"
  fi
  echo "$lib"
  exit 0
fi

mkdir -p "$(dirname "$lib")"
fetching=$(mktemp -d "$lib.fetching.XXXXXX")
trap 'rm -rf "$fetching"' EXIT
echo "fetching Apache Kafka 4.1.0 to $lib" >&2
# Strict checksums: Maven only warns of a mismatch by default.
mvn --batch-mode --quiet --strict-checksums --file "$here/kafka-pom.xml" \
  dependency:copy-dependencies -DincludeScope=runtime "-DoutputDirectory=$fetching/lib" >&2
verify "$fetching/lib"
cp "$sums" "$fetching/lib/verified.sha256"
# Of two that fetch at once the slower one loses its copy, not its run.
mv --no-target-directory "$fetching/lib" "$lib" 2>/dev/null || verify "$lib"
echo "$lib"
