"""Arrow tables as pandas frames, exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    import pandas as pd


def frame(table: pa.Table) -> pd.DataFrame:
    """The table as a pandas DataFrame in which nothing is rounded and unknown is `pandas.NA`.

    Integer columns become `Int64`, floats `Float64`, booleans `boolean` - with or without nulls, so that a
    column's type never depends on the data - and text becomes `string`. A plain conversion
    would turn integers beside a null into floats, which cannot hold nanoseconds since 1970.
    """
    import pandas as pd

    types = {
        pa.int64(): pd.Int64Dtype(),
        pa.float64(): pd.Float64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
        pa.string(): pd.StringDtype("pyarrow"),
    }
    made: pd.DataFrame = plain(table).to_pandas(types_mapper=types.get)
    return made


def plain(table: pa.Table) -> pa.Table:
    """The table with dictionary-coded text as plain text."""
    arrays = [c.cast(c.type.value_type) if pa.types.is_dictionary(c.type) else c for c in table.columns]
    return pa.Table.from_arrays(arrays, names=table.column_names)
