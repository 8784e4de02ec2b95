"""The ground: what a run is - schema, units, errors, Parquet in and out."""
