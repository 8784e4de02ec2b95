"""Files to tables: readers, identity, classification, links, steps, and the ingest pipeline."""
