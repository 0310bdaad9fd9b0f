#!/usr/bin/env python3
"""Folds a topic into what each sink must hold, and compares.

It shares nothing with the gateway: the topic comes from DumpTopic.java (Kafka's own client), SQLite is read by Python's own
module, and the folding is written here a second time, from the guarantees and not from the code.

    fold.py DUMP [--mask FIELD]... [--reject PREFIX] [--sqlite FILE --table TABLE] [--http DUMP] [--files DIRECTORY]

DUMP holds a line for each visible record: partition, offset, timestamp, key, value, then headers, tab-separated, bytes in
base64, null as "-". A state sink must hold, for each key, the value of its latest record and nothing for a key whose latest
is a tombstone; the file must hold each visible record exactly once, in whole lines. The HTTP receiver's dump has a line for
each key that it holds: key, partition, offset, value.

--mask FIELD says that the route masks this top-level field: the text of the field's string is replaced by "***" and every
other byte stays.

--reject PREFIX says that the route rejects each record whose key begins so: no sink holds it.

Prints one line for each comparison; exits 1 when any differs.
"""

import argparse
import base64
import json
import pathlib
import re
import sqlite3
import sys

SHOWN = 5  # differences that are printed, of each kind


def unpack(text):
    return None if text == b"-" else base64.b64decode(text)


def masker(fields):
    """Returns the function that a mask of `fields` is; written by hand, so as not to trust a JSON library's output."""
    if not fields:
        return lambda value: value
    names = "|".join(re.escape(field) for field in fields)
    pattern = re.compile(('("(?:%s)"\\s*:\\s*)"(?:[^"\\\\]|\\\\.)*"' % names).encode())
    return lambda value: None if value is None else pattern.sub(rb'\1"***"', value)


def read_topic(path, mask, reject):
    """Every visible record by position, and the state that they fold into."""
    records, latest = {}, {}
    with open(path, "rb") as dump:
        for line in dump:
            fields = line.rstrip(b"\n").split(b"\t")
            partition, offset, timestamp = int(fields[0]), int(fields[1]), int(fields[2])
            key, value = unpack(fields[3]), mask(unpack(fields[4]))
            if (partition, offset) in records:
                sys.exit(f"the dump holds partition {partition} offset {offset} twice")
            records[partition, offset] = (key, value)
            if key is None:
                continue
            if reject is not None and key.startswith(reject):
                del records[partition, offset]
                continue
            # Within a partition the offset decides; across partitions the newest timestamp does.
            held = latest.get(key)
            if held is None or (held[0] == partition and held[1] < offset) or (held[0] != partition and held[2] <= timestamp):
                latest[key] = (partition, offset, timestamp, value)
    state = {key: (partition, offset, value) for key, (partition, offset, _, value) in latest.items() if value is not None}
    return records, latest, state


def as_bytes(value):
    return value.encode() if isinstance(value, str) else value


class Comparison:
    def __init__(self):
        self.failed = False

    def report(self, name, facts, problems):
        shown = [problem for kind in problems.values() for problem in kind[:SHOWN]]
        counts = ", ".join(f"{len(kind)} {what}" for what, kind in problems.items() if kind)
        print(f"{name}: {'DIFFERS: ' + counts if counts else 'equal'} ({facts})")
        for problem in shown:
            print(f"  {problem}")
        self.failed |= bool(counts)

    def state(self, name, actual, expected):
        """`actual` and `expected`: key -> value."""
        self.report(
            name,
            f"{len(actual)} keys held, {len(expected)} expected",
            {
                "missing": [f"missing {key!r}" for key in expected if key not in actual],
                "left over": [f"left over {key!r}" for key in actual if key not in expected],
                "wrong": [
                    f"{key!r} is {actual[key]!r}, expected {value!r}"
                    for key, value in expected.items()
                    if key in actual and actual[key] != value
                ],
            },
        )


def compare_sqlite(comparison, path, table, state):
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        rows = database.execute(f'SELECT "key", "value" FROM "{table}"').fetchall()
    actual = {as_bytes(key): as_bytes(value) for key, value in rows}
    if len(actual) != len(rows):
        comparison.report("sqlite", f"{len(rows)} rows", {"doubled": [f"{len(rows) - len(actual)} rows share their key"]})
    comparison.state("sqlite", actual, {key: value for key, (_, _, value) in state.items()})


def compare_http(comparison, path, state):
    actual = {}
    with open(path, "rb") as dump:
        for line in dump:
            key, _, _, value = line.rstrip(b"\n").split(b"\t")
            actual[unpack(key)] = unpack(value)
    comparison.state("http", actual, {key: value for key, (_, _, value) in state.items()})


def field_of(row, name):
    """A field that is JSON inline, or base64 under a name of its own."""
    packed = row.get(f"{name}_base64")
    return None if packed is None else base64.b64decode(packed)


def compare_files(comparison, directory, records):
    seen, doubled, torn, wrong, lines = set(), [], [], [], 0
    for path in sorted(pathlib.Path(directory).rglob("*.ndjson")):
        content = path.read_bytes()
        if content and not content.endswith(b"\n"):
            torn.append(f"{path.name} ends in the middle of a line: {content[-80:]!r}")
        for line in content.splitlines():
            lines += 1
            try:
                row = json.loads(line)
                position = (row["partition"], row["offset"])
            except (ValueError, KeyError, TypeError) as error:
                torn.append(f"{path.name}: {line[:80]!r}: {error}")
                continue
            if position in seen:
                doubled.append(f"{position} is there twice")
            seen.add(position)
            if position in records:
                value = records[position][1]
                # JSON stands in the line byte for byte.
                inline = b"null" if value is None else value
                if b'"value":' + inline not in line and (value is None or field_of(row, "value") != value):
                    wrong.append(f"{position} is {line[:160]!r}, expected the value {value!r}")
    comparison.report(
        "file",
        f"{lines} lines, {len(records)} records visible",
        {
            "torn": torn,
            "doubled": doubled,
            "missing": [f"{position} is missing" for position in records if position not in seen],
            "left over": [f"{position} was never visible" for position in seen if position not in records],
            "wrong": wrong,
        },
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dump")
    parser.add_argument("--mask", action="append", default=[], metavar="FIELD")
    parser.add_argument("--reject", type=str.encode, metavar="PREFIX")
    parser.add_argument("--sqlite", metavar="FILE")
    parser.add_argument("--table", default="profiles")
    parser.add_argument("--http", metavar="DUMP")
    parser.add_argument("--files", metavar="DIRECTORY")
    arguments = parser.parse_args()

    records, latest, state = read_topic(arguments.dump, masker(arguments.mask), arguments.reject)
    tombstones = sum(1 for _, value in records.values() if value is None)
    print(f"topic: {len(records)} records visible, {tombstones} tombstones, {len(latest)} keys, {len(state)} of them live")

    comparison = Comparison()
    if arguments.sqlite:
        compare_sqlite(comparison, arguments.sqlite, arguments.table, state)
    if arguments.http:
        compare_http(comparison, arguments.http, state)
    if arguments.files:
        compare_files(comparison, arguments.files, records)
    sys.exit(1 if comparison.failed else 0)


if __name__ == "__main__":
    main()
