"""Tables to tables: pure functions, numpy inside, no files and no printing."""
