"""Writes one table as Parquet, as Arrow's files and as CSV, beside this script: what columnar_test compares.

Tried with pyarrow 26.0.1 and pandas. The CSV file is pandas' own, from Arrow's types, so that integers beside nulls
keep their digits.
"""
import decimal
import pathlib
import random

import pandas
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

here = pathlib.Path(__file__).parent
random.seed(1)
ROWS = 60


def column(values, type_, nulls=True):
    return pa.array([None if nulls and i % 7 == 3 else values(i) for i in range(ROWS)], type_)


words = ["plain", "a,b", 'say "x"', "two\nlines", "Zürich", " space ", "7", "NA"]
table = pa.table({
    "truth": column(lambda i: i % 3 == 0, pa.bool_()),
    "small": column(lambda i: i - 30, pa.int8()),
    "whole": column(lambda i: random.randrange(-2**62, 2**62), pa.int64()),
    "unsigned": column(lambda i: 2**64 - 1 - i * 2**50, pa.uint64()),
    "single": column(lambda i: random.gauss(0, 1) * 10.0**(i % 25 - 12), pa.float32()),
    "double": column(lambda i: [float("nan"), 0.1, -0.0, 1e16, 123456789.0, 1e-5, 1e22][i % 7] * (i + 1), pa.float64()),
    "money": column(lambda i: decimal.Decimal(i * 37 - 900) / 100, pa.decimal128(12, 2)),
    "text": column(lambda i: words[i % len(words)], pa.string()),
    "large": column(lambda i: words[i % 3], pa.large_string()),
    "code": column(lambda i: words[i % 5], pa.string()).dictionary_encode(),
    "number_code": column(lambda i: i % 4, pa.int32()).dictionary_encode(),
    "label": column(lambda i: "cat" if i % 3 else "dog", pa.string(), nulls=False),
    "target": column(lambda i: i * 0.37 - 4, pa.float64(), nulls=False),
    "weight": column(lambda i: i % 5 / 4, pa.float32(), nulls=False),
    "review": column(lambda i: f"{words[i % len(words)]} {i}", pa.string()),
})


def as_pandas(values):
    """Of Arrow's types, but floats, of which NumPy's give the shortest digits of 32 bits."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return values.to_pandas() if pa.types.is_floating(values.type) else values.to_pandas(types_mapper=pandas.ArrowDtype)


pandas.DataFrame({name: as_pandas(table[name]) for name in table.column_names}).to_csv(here / "table.csv", index=False)
when = pa.array(list(range(ROWS)), pa.timestamp("us"))
more = table.append_column("when", when).append_column("list", pa.array([[i] for i in range(ROWS)]))
pa.parquet.write_table(more, here / "table.parquet", row_group_size=23, compression="zstd")
pa.parquet.write_table(table.slice(0, 25), here / "part-0.parquet", compression="snappy", use_dictionary=False)
pa.parquet.write_table(table.slice(25), here / "part-1.parquet", compression="gzip")
pa.feather.write_feather(table, here / "table.feather", compression="lz4", chunksize=23)
with pa.ipc.new_stream(here / "table.arrows", table.schema) as stream:
    for batch in table.to_batches(max_chunksize=17):
        stream.write(batch)
pa.parquet.write_table(pa.Table.from_pandas(pandas.DataFrame({"x": [1, 2], "y": ["a", "b"]}, index=[5, 9])), here / "index.parquet")
