"""A model of a training run, and the trace files and true answers it gives."""
